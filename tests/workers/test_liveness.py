"""A worker that speaks is alive, however busy the database is with others."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from django.db import connection, transaction

from jobs import rescue
from jobs.clock import now_and_up_since
from jobs.models import Job
from tests.factories import JobFactory
from tests.workers.conftest import WireWorker
from workers import registry
from workers.models import Worker

pytestmark = pytest.mark.django_db(transaction=True)

SECONDS = 20  # a guard against hanging
Enroll = Any


@pytest.fixture
def worker(enroll: Enroll) -> WireWorker:
    found: WireWorker = enroll("here", local=True, gateway_url="http://127.0.0.1:18787")
    Worker.objects.update(gateway_status=Worker.Gateway.OK)
    return found


class Holding:
    """A transaction on another connection that holds its locks for the length of a block."""

    def __init__(self, *statements: str) -> None:
        self._statements = statements
        self._held, self._done = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._hold)

    def _hold(self) -> None:
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                for statement in self._statements:
                    cursor.execute(statement)
                self._held.set()
                self._done.wait(SECONDS)
        finally:
            connection.close()

    def __enter__(self) -> None:
        self._thread.start()
        assert self._held.wait(SECONDS)

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join(SECONDS)


def test_a_long_write_elsewhere_does_not_hold_a_heartbeat_up(worker: WireWorker, enroll: Enroll) -> None:
    enroll("other")
    job = JobFactory.create()
    Worker.objects.update(last_seen_at=None)
    write = "UPDATE jobs_job SET reason = 'a long write'"
    other = "UPDATE workers_worker SET hostname = 'x' WHERE name = 'other'"

    with Holding(write, other):
        answer = worker.heartbeat()

    assert answer.status_code == 200
    assert worker.row.last_seen_at is not None
    assert Job.objects.get(pk=job.pk).reason == "a long write"


def test_a_worker_whose_job_is_locked_is_alive_and_asked_to_come_again(
    worker: WireWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "LOCK_TIMEOUT_MS", 50)
    JobFactory.create()
    claimed = worker.claim().json()

    Worker.objects.update(last_seen_at=None)

    with Holding("UPDATE jobs_lease SET accepted_through = accepted_through"):
        answer = worker.heartbeat(holds=[{"lease": claimed["lease"], "state": "leased"}])

    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert answer.headers["Retry-After"]
    assert worker.row.last_seen_at is not None

    again = worker.heartbeat(holds=[{"lease": claimed["lease"], "state": "leased"}])
    assert again.json()["leases"][0]["want"] == "keep"


def test_a_read_of_all_workers_does_not_hold_a_heartbeat_up(worker: WireWorker) -> None:
    with Holding("SELECT * FROM workers_worker", "SELECT * FROM jobs_job"):
        assert worker.heartbeat().status_code == 200


def test_many_claims_at_once_lease_every_job_once(enroll: Enroll, at_once: Any, settings: Any) -> None:
    settings.OPENFACE_WORKER_RATE = "1000/1000"
    workers = [enroll(name, local=True, gateway_url="http://127.0.0.1:18787") for name in ("one", "two")]
    Worker.objects.update(gateway_status=Worker.Gateway.OK, max_cpu_jobs=20)
    jobs = [JobFactory.create() for _ in range(20)]

    calls = [lambda w=worker: w.claim(free_slots={"gpu": 0, "cpu": 20}) for worker in workers for _ in range(20)]
    answers = at_once(calls)

    claimed = [answer.json()["id"] for answer in answers if answer.status_code == 200]
    assert sorted(claimed) == sorted(str(job.pk) for job in jobs)
    assert sorted(answer.status_code for answer in answers) == [200] * 20 + [204] * 20


def test_registering_while_claims_run_leaves_one_session(enroll: Enroll, at_once: Any, settings: Any) -> None:
    settings.OPENFACE_HEARTBEAT_RATE = settings.OPENFACE_WORKER_RATE = "1000/1000"
    worker = enroll("here", local=True, gateway_url="http://127.0.0.1:18787")
    clones = [WireWorker(worker.id, worker.credential) for _ in range(6)]

    at_once([clone.register for clone in clones])

    beats = at_once([clone.heartbeat for clone in clones])
    assert sorted(clone.session for clone in clones) == [2, 3, 4, 5, 6, 7]
    assert sorted(beat.status_code for beat in beats) == [200] + [409] * 5


def test_a_write_transaction_longer_than_the_silence_that_counts_marks_nobody_offline(
    enroll: Enroll, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A migration and a bulk write hold every job and lease; heartbeats answer 503, and yet everybody is alive."""
    settings.OPENFACE_HEARTBEAT_RATE = settings.OPENFACE_WORKER_RATE = "1000/1000"
    monkeypatch.setattr(registry, "LOCK_TIMEOUT_MS", 20)
    workers = [enroll(name, local=True, gateway_url="http://127.0.0.1:18787") for name in ("one", "two", "three")]
    Worker.objects.update(gateway_status=Worker.Gateway.OK)
    claims = []
    for worker in workers:
        JobFactory.create()
        claims.append(worker.claim().json())
        steps = ("building", "starting")
        events: list[Any] = [{"seq": seq, "kind": kind} for seq, kind in enumerate(steps, start=1)]
        worker.events(claims[-1], [*events, {"seq": 3, "kind": "running", "image_id": None, "gpus": []}])

    def beat() -> set[int]:
        return {
            worker.heartbeat(holds=[{"lease": claimed["lease"], "state": "running"}]).status_code
            for worker, claimed in zip(workers, claims, strict=True)
        }

    long_write = (
        "UPDATE jobs_job SET reason = 'a long write'",
        "UPDATE jobs_lease SET accepted_through = accepted_through",
        "LOCK TABLE spaces_localcollaborator IN ACCESS EXCLUSIVE MODE",
    )
    settings.OPENFACE_GPU_WORKER_STALE_SECONDS = 2.0
    with Holding(*long_write):
        until = time.monotonic() + 1.5 * settings.OPENFACE_GPU_WORKER_STALE_SECONDS
        answers: set[int] = set()
        while time.monotonic() < until:
            answers |= beat()
            rescue.sweep()
            now, up_since = now_and_up_since()
            assert [row.name for row in Worker.objects.all() if not row.is_online(now=now, up_since=up_since)] == []
    assert answers == {503}
    assert beat() == {200}
    assert set(Job.objects.values_list("state", flat=True)) == {"running"}
