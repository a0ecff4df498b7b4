"""Draining is complete when the worker's inventory is empty, and not known when it does not say what it has."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from jobs.models import AuditEvent, Job, JobEvent, Lease
from jobs.states import JobState
from tests.factories import UserFactory, ago
from tests.workers.conftest import WireWorker
from tests.workers.taken_jobs import drain_of, name_of, state_of, taken
from workers import standing
from workers.models import Worker
from workers.overview import line_of

pytestmark = pytest.mark.django_db


class TestWhenItIsComplete:
    def test_a_worker_with_jobs_is_not_drained_and_says_which(self, worker: WireWorker) -> None:
        job, claimed = taken(worker)
        worker.heartbeat(holds=[{"lease": claimed["lease"], "state": "running"}])

        standing.drain(worker.row_id, actor=None)

        drain = drain_of(worker)
        assert (drain.complete, [left.name for left in drain.left]) == (False, [name_of(job)])
        assert drain.sentence() == f"1 left ({name_of(job)})"

    def test_a_container_that_still_stops_counts(self, worker: WireWorker) -> None:
        job, claimed = taken(worker)
        standing.drain(worker.row_id, actor=None)
        worker.events(claimed, [{"seq": 4, "kind": "stopped"}])
        assert state_of(job) == JobState.FAILED
        hold = {"lease": claimed["lease"], "state": "stopping"}

        worker.heartbeat(holds=[hold])
        left = drain_of(worker)
        worker.heartbeat(holds=[])

        assert (left.complete, left.left[0].state) == (False, "removing")
        assert drain_of(worker).complete is True
        assert drain_of(worker).sentence() == "safe to switch off"

    def test_a_container_that_nobody_here_knows_counts(self, worker: WireWorker) -> None:
        standing.drain(worker.row_id, actor=None)

        worker.heartbeat(holds=[{"lease": str(uuid.uuid4()), "state": "running"}])

        drain = drain_of(worker)
        assert (drain.complete, drain.left[0].state) == (False, "unknown")

    def test_a_container_that_turned_up_again_after_its_end_counts(self, worker: WireWorker) -> None:
        job, claimed = taken(worker)
        worker.events(claimed, [{"seq": 4, "kind": "stopped"}])
        worker.heartbeat(holds=[])
        assert Lease.objects.get().cleared_at is not None
        standing.drain(worker.row_id, actor=None)

        worker.heartbeat(holds=[{"lease": claimed["lease"], "state": "exited"}])

        drain = drain_of(worker)
        assert (drain.complete, drain.left[0].name) == (False, name_of(job))

    @pytest.mark.parametrize("left", [0, 1])
    def test_a_silent_worker_is_not_known_to_be_empty(self, worker: WireWorker, left: int) -> None:
        if left:
            taken(worker)
        standing.drain(worker.row_id, actor=None)
        Worker.objects.update(last_seen_at=ago(3600))

        drain = drain_of(worker)

        assert (drain.complete, len(drain.left)) == (None, left)
        assert "not known" in drain.sentence()

    def test_nor_is_one_whose_engine_does_not_answer(self, worker: WireWorker) -> None:
        standing.drain(worker.row_id, actor=None)
        worker.heartbeat(holds=None)

        assert drain_of(worker).complete is None
        worker.heartbeat(holds=[])
        assert drain_of(worker).complete is True

    def test_an_open_worker_is_not_drained_at_all(self, worker: WireWorker) -> None:
        assert line_of(worker.row)[0].drain is None

    def test_a_job_that_is_being_stopped_has_a_deadline(self, worker: WireWorker, settings: Any) -> None:
        settings.OPENFACE_STOP_GRACE_SECONDS = 10
        job, _claimed = taken(worker)

        standing.disable(worker.row_id, actor=None)

        (left,) = drain_of(worker).left
        wished = Job.objects.get(pk=job.pk).stop_requested_at
        assert wished is not None and left.deadline_at is not None
        assert (left.state, (left.deadline_at - wished).total_seconds()) == ("stopping", 10)


class TestForce:
    """Waiting takes too long: disabling is a second act, with an audit row of its own that names what it stopped."""

    def test_a_drain_is_forced_by_disabling(self, worker: WireWorker) -> None:
        job, claimed = taken(worker)
        operator = UserFactory.create(username="olga", is_staff=True)
        standing.drain(worker.row_id, actor=operator, reason="new fans")

        standing.disable(worker.row_id, actor=operator, reason="cannot wait", address="10.0.0.7")

        assert state_of(job) == JobState.STOPPING
        forced, drained = AuditEvent.objects.filter(object_type="worker")[:2]
        assert [drained.act, forced.act] == ["worker_drained", "worker_disabled"]
        assert (forced.actor_name, forced.reason, forced.address) == ("olga", "cannot wait", "10.0.0.7")
        assert forced.before == {"scheduling": "draining"}
        assert forced.after == {"scheduling": "disabled", "jobs": [f"{name_of(job)} (running)"]}
        worker.events(claimed, [{"seq": 4, "kind": "stopped"}])
        worker.heartbeat(holds=[])
        assert drain_of(worker).complete is True

    def test_a_silent_workers_jobs_are_stopped_at_once(self, worker: WireWorker) -> None:
        job, _ = taken(worker)
        Worker.objects.update(last_seen_at=ago(3600))

        standing.disable(worker.row_id, actor=None)

        assert state_of(job) == JobState.COMPLETED
        assert (drain_of(worker).complete, len(drain_of(worker).left)) == (None, 1)

    def test_what_went_back_to_the_line_stays_there_for_others(self, worker: WireWorker) -> None:
        from jobs import rescue

        job, claimed = taken(worker, state="building")
        Lease.objects.update(expires_at=ago(60))
        rescue.sweep()
        assert state_of(job) == JobState.QUEUED

        standing.disable(worker.row_id, actor=None)

        assert state_of(job) == JobState.QUEUED
        answer = worker.heartbeat(holds=[{"lease": claimed["lease"], "state": "building"}]).json()
        assert answer["leases"][0]["want"] == "remove"
        assert JobEvent.objects.filter(job=job, reason_code="worker_disabled").exists()
