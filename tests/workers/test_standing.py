"""Drain, resume, disable, enable, revoke: what each does to the worker and to its jobs, and that it is written down."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from jobs.models import AuditEvent, Job, JobEvent, Lease, Reservation
from jobs.states import JobState
from tests.factories import JobFactory, RequirementFactory, UserFactory, ago
from tests.workers.conftest import GPU, WireWorker
from workers import enrollment, standing
from workers.errors import UnknownWorker, WrongStanding
from workers.models import EnrollmentToken, Worker

pytestmark = pytest.mark.django_db

Enroll = Any


def running(worker: WireWorker) -> tuple[Job, Any]:
    """A job of this worker that answers."""
    job = JobFactory.create(requirement=RequirementFactory.create(kind="gpu", gpu_count=1))
    claimed = worker.claim().json()
    batch = [
        {"seq": 1, "kind": "building"},
        {"seq": 2, "kind": "starting"},
        {"seq": 3, "kind": "running", "image_id": None, "gpus": []},
    ]
    assert worker.events(claimed, batch).json()["state"] == "running"
    return job, claimed


def state_of(job: Job) -> str:
    return Job.objects.get(pk=job.pk).state


def test_draining_lets_running_jobs_finish_and_takes_no_new_ones(worker: WireWorker) -> None:
    job, claimed = running(worker)
    JobFactory.create()

    standing.drain(worker.row_id, actor=None, reason="new fans")

    assert worker.claim().status_code == 204
    answer = worker.heartbeat(holds=[{"lease": claimed["lease"], "state": "running"}]).json()
    assert (answer["standing"], answer["leases"][0]["want"]) == ("draining", "keep")
    assert state_of(job) == JobState.RUNNING
    assert worker.row.scheduling_reason == "new fans"

    standing.resume(worker.row_id, actor=None)
    assert worker.claim().status_code == 200


def test_disabling_stops_running_jobs(worker: WireWorker) -> None:
    job, claimed = running(worker)

    standing.disable(worker.row_id, actor=None, reason="smoke")

    assert state_of(job) == JobState.STOPPING
    answer = worker.heartbeat(holds=[{"lease": claimed["lease"], "state": "running"}]).json()
    assert (answer["standing"], answer["leases"][0]["want"]) == ("disabled", "stop")
    worker.events(claimed, [{"seq": 4, "kind": "stopped"}])
    assert state_of(job) == JobState.COMPLETED
    assert JobEvent.objects.filter(job=job, reason_code="worker_disabled", reason__contains="smoke").exists()

    standing.enable(worker.row_id, actor=None)
    assert worker.row.scheduling == Worker.Scheduling.OPEN


def test_revoking_ends_the_credential_and_the_leases_and_keeps_the_history(worker: WireWorker) -> None:
    job, _ = running(worker)
    events = JobEvent.objects.filter(job=job).count()

    standing.revoke(worker.row_id, actor=None, reason="sold")

    assert worker.heartbeat().json()["code"] == "credential_revoked"
    lease = Lease.objects.get()
    assert lease.released_at and lease.cleared_at
    assert not Reservation.objects.filter(cleared_at=None).exists()
    assert state_of(job) == JobState.UNAVAILABLE
    assert JobEvent.objects.filter(job=job).count() == events + 1


def test_a_silent_workers_revocation_ends_what_was_unavailable(worker: WireWorker) -> None:
    job, _ = running(worker)
    Worker.objects.update(last_seen_at=ago(3600))
    from jobs.lifecycle import mark_silent

    assert mark_silent(job.pk, worker_name="gpu1", since=ago(3600), now=ago(0))

    standing.revoke(worker.row_id, actor=None)

    assert Lease.objects.get().cleared_at is not None
    assert state_of(job) == JobState.UNAVAILABLE


def test_each_act_is_audited_once(worker: WireWorker) -> None:
    AuditEvent.objects.all().delete()
    operator = UserFactory.create(username="olga", is_staff=True)

    for _ in range(2):
        standing.drain(worker.row_id, actor=operator, address="10.0.0.7", reason="fans")

    event = AuditEvent.objects.get()
    assert (event.act, event.actor_name, event.object_name, event.reason, event.address) == (
        "worker_drained",
        "olga",
        "gpu1",
        "fans",
        "10.0.0.7",
    )
    assert (event.before, event.after) == ({"scheduling": "open"}, {"scheduling": "draining"})


@pytest.mark.parametrize(("before", "act"), [("disabled", "drain"), ("disabled", "resume"), ("draining", "enable")])
def test_an_act_that_does_not_fit_the_standing_is_refused(worker: WireWorker, before: str, act: str) -> None:
    Worker.objects.update(scheduling=before)

    with pytest.raises(WrongStanding):
        standing.ACTS[act](worker.row_id, actor=None)
    assert worker.row.scheduling == before


@pytest.mark.parametrize("act", ["drain", "resume", "disable", "enable"])
def test_a_revoked_worker_has_no_standing(worker: WireWorker, act: str) -> None:
    standing.revoke(worker.row_id, actor=None)

    with pytest.raises(WrongStanding, match="--replace"):
        standing.ACTS[act](worker.row_id, actor=None)


def test_a_replacement_keeps_leases_and_containers(worker: WireWorker) -> None:
    job, claimed = running(worker)
    token = enrollment.issue_token("gpu1", replace=True).token
    body = {"token": token, "nonce": "0123456789abcdef", "hostname": "gpu1", "version": "1"}
    answer = worker.client.post("/api/v1/workers/enroll", json.dumps(body), content_type="application/json")
    again = WireWorker(worker.id, answer.json()["credential"], gpus=[GPU])

    (lease,) = again.register(holds=[{"lease": claimed["lease"], "state": "running"}])["leases"]

    assert (lease["want"], lease["runtime_token"]) == ("keep", claimed["runtime_token"])
    assert state_of(job) == JobState.RUNNING
    assert worker.heartbeat().json()["code"] == "credential_invalid"


class TestGatewayAddresses:
    def test_an_operator_approves_what_a_worker_proposes(self, worker: WireWorker) -> None:
        Worker.objects.update(gateway_fixed=False)
        answer = worker.register(gateway_url="http://10.0.0.5:8787")
        assert answer["gateway"] == "proposed"
        assert worker.row.gateway_url == "http://127.0.0.1:18787"  # the old one serves meanwhile

        standing.approve_gateway(worker.row_id, actor=None)

        row = worker.row
        assert (row.gateway_url, row.gateway_proposed_url) == ("http://10.0.0.5:8787", "")
        assert row.gateway_status == Worker.Gateway.UNKNOWN
        assert AuditEvent.objects.filter(act="gateway_approved").exists()

    def test_an_operator_refuses_it(self, worker: WireWorker) -> None:
        Worker.objects.update(gateway_fixed=False)
        worker.register(gateway_url="http://10.0.0.5:8787")

        standing.refuse_gateway(worker.row_id, actor=None)

        row = worker.row
        assert (row.gateway_url, row.gateway_proposed_url) == ("http://127.0.0.1:18787", "")
        with pytest.raises(WrongStanding):
            standing.refuse_gateway(worker.row_id, actor=None)

    def test_a_proposal_never_replaces_an_operators_address(self, worker: WireWorker) -> None:
        worker.register(gateway_url="http://10.0.0.5:8787")

        row = worker.row
        assert (row.gateway_url, row.gateway_proposed_url) == ("http://127.0.0.1:18787", "")

    def test_a_worker_that_proposes_nothing_any_more_withdraws(self, worker: WireWorker) -> None:
        Worker.objects.update(gateway_fixed=False)
        worker.register(gateway_url="http://10.0.0.5:8787")

        worker.register()

        assert worker.row.gateway_proposed_url == ""


class TestCommands:
    def run(self, *arguments: str) -> tuple[str, str]:
        out, err = io.StringIO(), io.StringIO()
        call_command(*arguments, stdout=out, stderr=err)
        return out.getvalue(), err.getvalue()

    def test_the_token_stands_alone_on_stdout(self) -> None:
        out, err = self.run("issue_enrollment_token", "gpu9", "--ttl", "2h", "--gateway", "http://10.0.0.5:8787")

        token = out.removesuffix("\n")
        assert token.startswith("oft_") and "\n" not in token
        assert "gpu9" in err and token not in err
        assert EnrollmentToken.objects.get().gateway_url == "http://10.0.0.5:8787"

    def test_json_has_the_token_and_its_end(self) -> None:
        out, _ = self.run("issue_enrollment_token", "gpu9", "--json")

        assert json.loads(out).keys() == {"token", "name", "expires_at"}

    @pytest.mark.parametrize(
        "arguments",
        [
            ["gpu1"],  # the name is taken
            ["gpu9", "--replace"],
            ["no/slash"],
            ["gpu9", "--gateway", "nonsense"],
            ["gpu9", "--ttl", "99d"],
            ["gpu9", "--ttl", "soon"],
        ],
    )
    def test_a_mistake_is_a_sentence(self, worker: WireWorker, arguments: list[str]) -> None:
        with pytest.raises(CommandError):
            self.run("issue_enrollment_token", *arguments)
        assert EnrollmentToken.objects.count() == 1  # the enrolled worker's own

    def test_a_disabled_feature_is_said(self, settings: Any) -> None:
        settings.OPENFACE_GPU_WORKERS_ENABLED = False

        _, err = self.run("issue_enrollment_token", "gpu9")

        assert "OPENFACE_GPU_WORKERS_ENABLED" in err

    def test_the_list_says_who_is_where(self, worker: WireWorker) -> None:
        running(worker)

        line = json.loads(self.run("workers", "--json")[0])

        assert (line["name"], line["standing"], line["jobs"]) == ("gpu1", "online", 1)
        assert line["gpus"][0]["reserved_mib"] == 24564
        assert "gpu1" in self.run("workers")[0]

    @pytest.mark.parametrize(("act", "scheduling"), [("drain", "draining"), ("disable", "disabled")])
    def test_acts_by_name(self, worker: WireWorker, act: str, scheduling: str) -> None:
        outcome = json.loads(self.run(act, "GPU1", "--reason", "fans", "--json")[0])

        assert (outcome["name"], outcome["scheduling"]) == ("gpu1", scheduling)
        assert AuditEvent.objects.filter(reason="fans", actor_name="command line").exists()

    def test_revoke_by_name(self, worker: WireWorker) -> None:
        self.run("revoke", "gpu1")

        assert worker.row.revoked_at is not None
        assert self.run("workers")[0].startswith("No worker")
        assert "revoked" in self.run("workers", "--all")[0]

    def test_a_name_that_nobody_has_is_a_sentence(self) -> None:
        with pytest.raises(CommandError, match="nobody"):
            self.run("drain", "nobody")
        with pytest.raises(UnknownWorker):
            standing.worker_named("nobody")
