"""A job that uses more VRAM than it reserved is told once, with who is at risk, and goes on."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobs.models import Job, JobEvent, Lease, Reservation
from jobs.states import JobState
from spaces.models import Space
from tests.factories import JobFactory, RequirementFactory, SpaceFactory, ago
from tests.workers.conftest import GPU, WireWorker
from workers.models import Worker

pytestmark = pytest.mark.django_db

Enroll = Any
RESERVED = 6_144


@pytest.fixture
def worker(enroll: Enroll) -> WireWorker:
    found: WireWorker = enroll(gpus=[GPU], gateway_url="http://127.0.0.1:18787", register=False)
    found.register(gpu=4)
    Worker.objects.update(gateway_status=Worker.Gateway.OK)
    return found


def claimed_job(worker: WireWorker, owner: str, name: str) -> Any:
    needs = RequirementFactory.create(kind="gpu", gpu_count=1, vram_mib=RESERVED)
    JobFactory.create(requirement=needs, space=SpaceFactory.create(owner=owner, name=name))
    answer = worker.claim()
    assert answer.status_code == 200
    return answer.json()


def beat(worker: WireWorker, uses: dict[str, int | None], **facts: Any) -> None:
    """A heartbeat that lists these leases as running, with what each uses."""
    used = sum(mib or 0 for mib in uses.values())
    ours = [{"lease": lease, "mib": mib} for lease, mib in uses.items()]
    holds = [{"lease": lease, "state": "running"} for lease in uses]
    gpu = GPU | {"ours": ours, "free_vram_mib": 24_100 - used} | facts
    assert worker.heartbeat(gpus=[gpu], holds=holds).status_code == 200


def warnings() -> list[JobEvent]:
    return list(JobEvent.objects.filter(event="vram_exceeded").order_by("id"))


def test_an_excess_is_told_once_with_the_neighbours_at_risk(worker: WireWorker) -> None:
    greedy = claimed_job(worker, "alice", "greedy")
    others = [claimed_job(worker, "bob", "lab"), claimed_job(worker, "carol", "app")]
    quiet = {other["lease"]: 1_000 for other in others}

    for _ in range(3):
        beat(worker, {greedy["lease"]: 9_318, **quiet})

    (event,) = warnings()
    assert (str(event.job_id), event.from_state, event.to_state) == (greedy["id"], "leased", "leased")
    assert event.facts["at_risk"] == ["bob/lab", "carol/app"]
    assert (event.facts["used_mib"], event.facts["reserved_mib"]) == (9_318, RESERVED)
    assert event.reason == (
        "It uses 9.1 GB; 6.0 GB are reserved on NVIDIA GeForce RTX 4090. 2 other Spaces on that GPU are at risk."
    )


def test_its_sentence_names_no_other_space_for_anybody_may_read_it(worker: WireWorker) -> None:
    greedy = claimed_job(worker, "alice", "greedy")
    other = claimed_job(worker, "bob", "secret")

    beat(worker, {greedy["lease"]: 9_318, other["lease"]: 1_000})

    assert "secret" not in warnings()[0].reason


def test_the_job_goes_on_as_it_was(worker: WireWorker) -> None:
    greedy = claimed_job(worker, "alice", "greedy")

    beat(worker, {greedy["lease"]: 20_000})

    job = Job.objects.get(pk=greedy["id"])
    assert (job.state, job.stop_requested_at) == (JobState.LEASED, None)
    assert (
        worker.heartbeat(holds=[{"lease": greedy["lease"], "state": "running"}]).json()["leases"][0]["want"] == "keep"
    )


def test_it_is_told_again_only_after_it_came_back(worker: WireWorker) -> None:
    lease = claimed_job(worker, "alice", "greedy")["lease"]

    for used in (9_000, 6_200, 9_000):  # 6,200 is above what it reserved: it has not come back
        beat(worker, {lease: used})
    assert len(warnings()) == 1

    for used in (6_144, 9_000, 9_000):
        beat(worker, {lease: used})
    assert len(warnings()) == 2


@pytest.mark.parametrize("used", [None, 0, RESERVED, RESERVED + 300])
def test_within_the_tolerance_and_where_nothing_is_measured_nothing_is_said(
    worker: WireWorker, used: int | None
) -> None:
    lease = claimed_job(worker, "alice", "modest")["lease"]

    beat(worker, {lease: used})

    assert warnings() == []


def test_who_has_the_whole_card_cannot_exceed_it(worker: WireWorker) -> None:
    JobFactory.create(requirement=RequirementFactory.create(kind="gpu", gpu_count=1, exclusive=True))
    lease = worker.claim().json()["lease"]

    beat(worker, {lease: 24_000})

    assert warnings() == []


def test_a_lease_that_was_cleared_is_not_blamed(worker: WireWorker) -> None:
    lease = claimed_job(worker, "alice", "gone")["lease"]
    Reservation.objects.update(cleared_at="2026-01-01T00:00:00Z")

    beat(worker, {lease: 20_000})

    assert warnings() == []


def test_what_is_left_of_a_run_that_ended_is_not_blamed(worker: WireWorker) -> None:
    lease = claimed_job(worker, "alice", "ended")["lease"]
    Lease.objects.update(released_at=ago(1))  # its container is still being removed

    beat(worker, {lease: 20_000})

    assert warnings() == []


def test_what_is_used_is_not_promised_to_anybody_else(worker: WireWorker) -> None:
    lease = claimed_job(worker, "alice", "greedy")["lease"]
    JobFactory.create(requirement=RequirementFactory.create(kind="gpu", gpu_count=1, vram_mib=RESERVED))
    beat(worker, {lease: 18_000})
    worker.gpus = [GPU | {"ours": [{"lease": lease, "mib": 18_000}], "free_vram_mib": 6_100}]

    assert worker.claim().status_code == 204


def test_watching_costs_a_heartbeat_no_statement(worker: WireWorker) -> None:
    leases = [claimed_job(worker, "alice", f"app{n}")["lease"] for n in range(2)]
    worker.heartbeat(holds=[{"lease": lease, "state": "running"} for lease in leases])  # settled

    with CaptureQueriesContext(connection) as unmeasured:
        beat(worker, dict.fromkeys(leases))
    with CaptureQueriesContext(connection) as measured:
        beat(worker, dict.fromkeys(leases, 6_000))

    assert len(measured) == len(unmeasured)
    assert sum("jobs_reservation" in query["sql"] for query in measured) == 1


def test_the_warning_wakes_the_pages_of_the_space(worker: WireWorker) -> None:
    lease = claimed_job(worker, "alice", "greedy")["lease"]

    with CaptureQueriesContext(connection) as queries:
        beat(worker, {lease: 9_000})

    told = [query["sql"] for query in queries if "pg_notify" in query["sql"]]
    assert any(str(Space.objects.get(name="greedy").pk) in sql for sql in told)
