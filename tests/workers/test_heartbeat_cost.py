"""What a usual heartbeat costs the database: counted, because a thousand workers send one every 15 seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.factories import JobFactory, RequirementFactory
from tests.workers.conftest import GPU, WireWorker
from workers.models import Gpu, Worker

pytestmark = pytest.mark.django_db

Enroll = Any
OTHER_GPU = GPU | {"uuid": "GPU-2b7e1516-28ae-4d2a-abf7-158809cf4f3c", "index": 1}
DISK = {"docker_root_free_mib": 181_200, "data_free_mib": 90_100}
USUAL = [
    "SELECT worker",  # whose credential is it
    "UPDATE worker",  # alive
    "SELECT",  # how long to wait for locks
    "SELECT worker",  # locked
    "SELECT gpu",
    "INSERT gpu",  # the readings
    "SELECT lease",
    "UPDATE lease",  # all renewed together
]


@dataclass
class Busy:
    """A worker and the leases of what it runs."""

    worker: WireWorker
    leases: list[str] = field(default_factory=list)


@pytest.fixture
def busy(enroll: Enroll) -> Busy:
    """A worker with two GPUs and four running jobs, that beats as usual."""
    worker: WireWorker = enroll("gpu1", local=True, gpus=[GPU, OTHER_GPU], gateway_url="http://127.0.0.1:18787")
    Worker.objects.update(gateway_status=Worker.Gateway.OK, max_gpu_jobs=4)
    busy = Busy(worker)
    for _ in range(4):
        JobFactory.create(requirement=RequirementFactory.create(kind="gpu", gpu_count=1, vram_mib=8_000))
        claimed = worker.claim(free_slots={"gpu": 4, "cpu": 0}).json()
        events = [{"seq": n, "kind": kind} for n, kind in enumerate(("building", "starting"), start=1)]
        worker.events(claimed, [*events, {"seq": 3, "kind": "running", "image_id": None, "gpus": []}])
        busy.leases.append(claimed["lease"])
    beat(busy)
    return busy


def beat(busy: Busy, **more: Any) -> list[str]:
    """One heartbeat with all four leases; returns its statements, as verb and table."""
    holds = [{"lease": lease, "state": "running"} for lease in busy.leases]
    with CaptureQueriesContext(connection) as captured:
        answer = busy.worker.heartbeat(**{"holds": holds, "disk": DISK, **more})
    assert answer.status_code == 200
    assert [each["want"] for each in answer.json()["leases"]] == ["keep"] * 4
    return [told for query in captured.captured_queries if (told := _told(query["sql"]))]


def _told(sql: str) -> str:
    verb = sql.split()[0]
    if verb not in ("SELECT", "INSERT", "UPDATE", "DELETE"):
        return ""  # savepoints of the test's own transaction
    for table in ("workers_worker", "workers_gpu", "jobs_lease", "jobs_job", "jobs_reservation"):
        if table in sql.split("WHERE")[0]:
            return f"{verb} {table.split('_')[1]}"
    return f"{verb} {'notify' if 'pg_notify' in sql else ''}".strip()


def test_a_usual_heartbeat_takes_eight_statements_and_notifies_nobody(busy: Busy) -> None:
    assert beat(busy) == USUAL


def test_so_does_one_with_new_readings(busy: Busy) -> None:
    busy.worker.gpus = [gpu | {"free_vram_mib": 7_000, "utilization_pct": 97} for gpu in busy.worker.gpus]

    assert beat(busy) == USUAL

    assert set(Gpu.objects.values_list("free_vram_mib", "utilization_pct")) == {(7_000, 97.0)}


def test_the_number_of_leases_and_gpus_does_not_change_it(enroll: Enroll) -> None:
    idle = enroll("idle", gpus=[])
    idle.heartbeat(disk=DISK)

    with CaptureQueriesContext(connection) as captured:
        idle.heartbeat(disk=DISK)

    # Nothing to renew and nothing to store.
    told = [told for query in captured.captured_queries if (told := _told(query["sql"]))]
    assert told == [step for step in USUAL if step not in ("INSERT gpu", "UPDATE lease")]


@pytest.mark.parametrize(
    "news",
    [
        {"accepting": False, "paused_reason": "its owner plays"},
        {"disk": {"docker_root_free_mib": 4_000, "data_free_mib": 90_100}},
        {"disk": {"docker_root_free_mib": None, "data_free_mib": 90_100}},
    ],
    ids=["paused", "disk fills up", "disk unknown"],
)
def test_news_of_the_worker_cost_one_more(busy: Busy, news: dict[str, Any]) -> None:
    assert beat(busy, **news) == [*USUAL, "UPDATE worker"]
    assert beat(busy, **news) == USUAL


def test_a_few_megabytes_on_its_disk_are_no_news(busy: Busy) -> None:
    assert beat(busy, disk=DISK | {"docker_root_free_mib": 181_190}) == USUAL


def test_a_heartbeat_that_was_overtaken_proves_life_and_changes_nothing(busy: Busy) -> None:
    worker = busy.worker
    worker.beat += 1
    late = worker.beat
    beat(busy, accepting=False, paused_reason="newer")
    Worker.objects.update(last_seen_at=None)

    worker.beat = late - 1
    beat(busy, accepting=True)

    row = worker.row
    assert (row.accepting, row.paused_reason, row.beat) == (False, "newer", late + 1)
    assert row.last_seen_at is not None
