"""What revoking a worker ends, and whose word counts while it drains: the server's."""

from __future__ import annotations

import json

import pytest
from django.test import Client

from jobs.models import AuditEvent, Job, JobEvent, Reservation
from jobs.states import JobState
from tests.factories import JobFactory, ago
from tests.workers.conftest import GPU, WireWorker
from tests.workers.taken_jobs import name_of, state_of, taken
from workers import enrollment, standing
from workers.models import Worker

pytestmark = pytest.mark.django_db


class TestRevoke:
    def test_the_act_is_written_down_with_what_it_touched(self, worker: WireWorker) -> None:
        job, _ = taken(worker)

        standing.revoke(worker.row_id, actor=None, reason="sold", address="10.0.0.7")

        event = AuditEvent.objects.get(act="worker_revoked")
        assert event.before == {"scheduling": "open", "revoked": False}
        assert event.after == {"revoked": True, "jobs": [f"{name_of(job)} (running)"]}
        assert (event.actor_name, event.reason, event.address) == ("command line", "sold", "10.0.0.7")

    def test_a_second_one_changes_nothing(self, worker: WireWorker) -> None:
        taken(worker)
        standing.revoke(worker.row_id, actor=None)
        revoked_at, events = worker.row.revoked_at, JobEvent.objects.count()

        standing.revoke(worker.row_id, actor=None)

        assert (worker.row.revoked_at, JobEvent.objects.count()) == (revoked_at, events)
        assert AuditEvent.objects.filter(act="worker_revoked").count() == 1

    @pytest.mark.parametrize("state", ["leased", "building", "starting"])
    def test_what_was_coming_goes_back_to_the_line_uncounted(self, worker: WireWorker, state: str) -> None:
        job, _ = taken(worker, state=state)

        standing.revoke(worker.row_id, actor=None)

        job = Job.objects.get(pk=job.pk)
        assert (job.state, job.attempts, job.reason_code) == (JobState.QUEUED, 0, "worker_revoked")
        assert not Reservation.objects.filter(cleared_at=None).exists()

    @pytest.mark.parametrize("silent", [False, True])
    def test_what_ran_is_unavailable_and_can_be_stopped(self, worker: WireWorker, silent: bool) -> None:
        from jobs import lifecycle

        job, _ = taken(worker)
        if silent:
            Worker.objects.update(last_seen_at=ago(3600))

        standing.revoke(worker.row_id, actor=None)
        assert state_of(job) == JobState.UNAVAILABLE
        lifecycle.request_stop(job.pk)

        assert state_of(job) == JobState.COMPLETED  # nobody is left who could say so

    def test_what_was_being_stopped_counts_as_stopped(self, worker: WireWorker) -> None:
        job, _ = taken(worker)
        standing.disable(worker.row_id, actor=None)

        standing.revoke(worker.row_id, actor=None)

        assert state_of(job) == JobState.COMPLETED


class TestFlagsLiveOnTheServer:
    @pytest.mark.parametrize("act", ["drain", "disable"])
    def test_they_survive_a_new_register(self, worker: WireWorker, act: str) -> None:
        standing.ACTS[act](worker.row_id, actor=None, reason="fans")
        scheduling = worker.row.scheduling

        answer = worker.register()

        assert (answer["standing"], worker.row.scheduling) == (scheduling, scheduling)
        assert worker.row.scheduling_reason == "fans"
        JobFactory.create()
        assert worker.claim().status_code == 204

    @pytest.mark.parametrize("act", ["drain", "disable"])
    def test_they_survive_a_replacement(self, worker: WireWorker, act: str) -> None:
        standing.ACTS[act](worker.row_id, actor=None, reason="fans")
        scheduling = worker.row.scheduling
        token = enrollment.issue_token("gpu1", replace=True).token
        body = {"token": token, "nonce": "0123456789abcdef", "hostname": "gpu1", "version": "1"}
        answer = Client().post("/api/v1/workers/enroll", json.dumps(body), content_type="application/json")

        again = WireWorker(worker.id, answer.json()["credential"], gpus=[GPU])

        assert again.register()["standing"] == scheduling
        assert worker.row.scheduling_reason == "fans"
