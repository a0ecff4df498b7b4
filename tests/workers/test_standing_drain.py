"""Draining is complete when the worker's inventory is empty, and not known when it does not say what it has."""

from __future__ import annotations

import io
import json
import threading
import uuid
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from jobs.models import AuditEvent, Job, JobEvent, Lease, Reservation
from jobs.states import JobState
from tests.factories import JobFactory, RequirementFactory, UserFactory, ago
from tests.workers.conftest import GPU, WireWorker
from workers import enrollment, standing
from workers.inventory import Drain
from workers.management import standing_command
from workers.models import Worker
from workers.overview import line_of

pytestmark = pytest.mark.django_db

Enroll = Any
REPORTS = [{"seq": 1, "kind": "building"}, {"seq": 2, "kind": "starting"}]
RUNNING = {"seq": 3, "kind": "running", "image_id": None, "gpus": []}


@pytest.fixture
def worker(enroll: Enroll) -> WireWorker:
    found: WireWorker = enroll("gpu1", local=True, gpus=[GPU], gateway_url="http://127.0.0.1:18787")
    Worker.objects.update(gateway_status=Worker.Gateway.OK)
    return found


def taken(worker: WireWorker, *, state: str = "running", kind: str = "gpu") -> tuple[Job, Any]:
    """A job that this worker has brought so far."""
    job = JobFactory.create(requirement=RequirementFactory.create(kind=kind, gpu_count=int(kind == "gpu")))
    claimed = worker.claim().json()
    reports = {"leased": [], "building": REPORTS[:1], "starting": REPORTS, "running": [*REPORTS, RUNNING]}[state]
    assert worker.events(claimed, reports).json()["state"] == state
    return job, claimed


def name_of(job: Job) -> str:
    return f"{job.owner}/{job.repo}"


def drain_of(worker: WireWorker) -> Drain:
    drain = line_of(worker.row)[0].drain
    assert drain is not None
    return drain


def state_of(job: Job) -> str:
    return Job.objects.get(pk=job.pk).state


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


class TestForPrograms:
    @pytest.fixture
    def operator(self) -> Client:
        client = Client()
        client.force_login(UserFactory.create(username="olga", is_staff=True))
        return client

    def test_the_list_and_the_worker_say_how_far_it_is(self, worker: WireWorker, operator: Client) -> None:
        job, _ = taken(worker)
        standing.drain(worker.row_id, actor=None)

        listed = operator.get("/api/v1/fleet/workers").json()["workers"]
        one = operator.get("/api/v1/fleet/workers/GPU1").json()

        assert [(entry["name"], entry["drain"]) for entry in listed] == [("gpu1", one["drain"])]
        assert (one["standing"], one["stale"], one["drain"]["complete"]) == ("draining", False, False)
        assert one["drain"]["left"][0] | {"lease": "", "since": ""} == {
            "lease": "",
            "space": name_of(job),
            "state": "running",
            "since": "",
            "deadline_at": None,
        }

    def test_an_act_answers_how_far_it_is(self, worker: WireWorker, operator: Client) -> None:
        answer = operator.post(
            "/api/v1/fleet/workers/gpu1/drain", json.dumps({"reason": "fans"}), content_type="application/json"
        )

        assert answer.status_code == 200
        assert (answer.json()["scheduling"], answer.json()["drain"]) == ("draining", {"complete": True, "left": []})
        assert AuditEvent.objects.get(act="worker_drained").address == "127.0.0.1"

    def test_the_list_and_the_page_say_when_remote_workers_are_switched_off(
        self, worker: WireWorker, operator: Client, settings: Any
    ) -> None:
        said = "Remote GPU workers are switched off"
        assert operator.get("/api/v1/fleet/workers").json()["remote_workers_enabled"] is True
        settings.OPENFACE_GPU_WORKERS_ENABLED = False

        assert operator.get("/api/v1/fleet/workers").json()["remote_workers_enabled"] is False
        assert said not in operator.get("/fleet/").content.decode()  # the only worker is local
        Worker.objects.update(local=False)
        assert said in operator.get("/fleet/").content.decode()

    @pytest.mark.parametrize("path", ["", "/gpu1"])
    def test_nobody_else_may_look(self, worker: WireWorker, path: str) -> None:
        reader = Client()
        reader.force_login(UserFactory.create())

        assert reader.get(f"/api/v1/fleet/workers{path}").status_code == 403
        assert Client().get(f"/api/v1/fleet/workers{path}").status_code in (401, 403)

    def test_a_revoked_worker_is_listed_when_asked_for(self, worker: WireWorker, operator: Client) -> None:
        standing.revoke(worker.row_id, actor=None)

        assert operator.get("/api/v1/fleet/workers").json()["workers"] == []
        (line,) = operator.get("/api/v1/fleet/workers?revoked=1").json()["workers"]
        assert line["standing"] == "revoked"
        assert operator.get("/api/v1/fleet/workers/nobody").status_code == 404


class TestTheCommand:
    def run(self, *arguments: str) -> tuple[str, str]:
        out, err = io.StringIO(), io.StringIO()
        call_command(*arguments, stdout=out, stderr=err)
        return out.getvalue(), err.getvalue()

    def test_the_list_says_how_far_it_is(self, worker: WireWorker) -> None:
        job, _ = taken(worker)
        standing.drain(worker.row_id, actor=None)

        assert f"1 left ({name_of(job)})" in self.run("workers")[0]

    def test_waiting_for_an_empty_worker_returns_at_once(self, worker: WireWorker) -> None:
        out, err = self.run("drain", "gpu1", "--wait")

        assert (out, err) == ("gpu1: safe to switch off\n", "")

    def test_waiting_gives_up_with_a_status_of_its_own(
        self, worker: WireWorker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(standing_command, "LOOK_SECONDS", 0.01)
        job, _ = taken(worker)

        with pytest.raises(CommandError, match=f"1 left .{name_of(job)}.") as given_up:
            self.run("drain", "gpu1", "--wait", "--timeout", "0.05")

        assert given_up.value.returncode == 124
        assert worker.row.scheduling == "draining"

    def test_waiting_in_vain_still_prints_how_far_it_is(
        self, worker: WireWorker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(standing_command, "LOOK_SECONDS", 0.01)
        _, claimed = taken(worker)
        out = io.StringIO()

        with pytest.raises(CommandError) as given_up:
            call_command("drain", "gpu1", "--wait", "--timeout", "0", "--json", stdout=out, stderr=io.StringIO())

        assert given_up.value.returncode == 124
        outcome = json.loads(out.getvalue())
        assert (outcome["name"], outcome["scheduling"], outcome["drain"]["complete"]) == ("gpu1", "draining", False)
        assert [left["lease"] for left in outcome["drain"]["left"]] == [claimed["lease"]]

    def test_waiting_that_somebody_ended_prints_that_it_is_open(
        self, worker: WireWorker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        taken(worker)
        monkeypatch.setattr(standing_command, "sleep", lambda _seconds: standing.resume(worker.row_id, actor=None))
        out = io.StringIO()

        with pytest.raises(CommandError, match="opened again") as given_up:
            call_command("drain", "gpu1", "--wait", "--json", stdout=out, stderr=io.StringIO())

        assert given_up.value.returncode == 1
        outcome = json.loads(out.getvalue())
        assert (outcome["scheduling"], outcome["drain"]) == ("open", None)

    def test_waiting_does_not_believe_a_silent_worker(
        self, worker: WireWorker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(standing_command, "LOOK_SECONDS", 0.01)
        Worker.objects.update(last_seen_at=ago(3600))

        with pytest.raises(CommandError, match="not known"):
            self.run("drain", "gpu1", "--wait", "--timeout", "0.05")


@pytest.mark.django_db(transaction=True)
def test_the_command_waits_until_the_last_container_is_gone(
    worker: WireWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes: the shell waits, and the machine goes on reporting."""
    from django.db import connection

    job, claimed = taken(worker)
    looked, look = threading.Semaphore(0), threading.Semaphore(0)

    def pause(_seconds: float) -> None:
        looked.release()
        look.acquire(timeout=20)

    monkeypatch.setattr(standing_command, "sleep", pause)
    out, err = io.StringIO(), io.StringIO()

    def shell() -> None:
        try:
            call_command("drain", "gpu1", "--wait", "--json", stdout=out, stderr=err)
        finally:
            connection.close()

    waiting = threading.Thread(target=shell)
    waiting.start()
    assert looked.acquire(timeout=20)
    worker.events(claimed, [{"seq": 4, "kind": "stopped"}])
    worker.heartbeat(holds=[{"lease": claimed["lease"], "state": "stopping"}])
    look.release()
    assert looked.acquire(timeout=20)
    worker.heartbeat(holds=[])
    look.release()
    waiting.join(20)

    assert not waiting.is_alive()
    outcome = json.loads(out.getvalue())
    assert (outcome["scheduling"], outcome["drain"]) == ("draining", {"complete": True, "left": []})
    assert f"1 left ({name_of(job)})" in err.getvalue()
