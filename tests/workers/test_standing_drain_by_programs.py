"""Draining by programs: the operator's API and the command that waits."""

from __future__ import annotations

import io
import json
import threading
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from jobs.models import AuditEvent
from tests.factories import UserFactory, ago
from tests.workers.conftest import WireWorker
from tests.workers.taken_jobs import name_of, taken
from workers import standing
from workers.management import standing_command
from workers.models import Worker

pytestmark = pytest.mark.django_db
Enroll = Any


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
