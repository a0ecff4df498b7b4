"""A worker takes the oldest job that fits it, exactly once."""

from __future__ import annotations

import itertools
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from jobs.errors import StaleLease, SupersededSession
from jobs.lifecycle import Claim, claim_next, request_stop
from jobs.models import Job, Lease, Reservation
from jobs.states import JobState
from tests.factories import GpuFactory, GpuWorkerFactory, JobFactory, RequirementFactory, WorkerFactory, ago
from tests.jobs.conftest import claim, must_claim
from workers.models import Worker

pytestmark = pytest.mark.django_db


def gpu_job(**needs: Any) -> Job:
    return JobFactory.create(requirement=RequirementFactory.create(kind="gpu", **({"gpu_count": 1} | needs)))


def test_the_oldest_job_is_taken_first() -> None:
    jobs = [JobFactory.create() for _ in range(3)]
    worker = WorkerFactory.create()

    taken = [must_claim(worker, f"k{n}").job for n in range(3)]

    assert taken == jobs


def test_a_claimed_job_is_leased_to_the_worker_and_counts_an_attempt() -> None:
    job = JobFactory.create()
    worker = WorkerFactory.create()

    claimed = must_claim(worker)

    job.refresh_from_db()
    assert (job.state, job.worker, job.attempts) == (JobState.LEASED, worker, 1)
    assert claimed.lease.released_at is None
    assert [event.to_state for event in job.events.all()] == ["leased"]


def test_an_empty_queue_gives_nothing() -> None:
    assert claim(WorkerFactory.create()) is None


def test_the_same_key_repeats_the_answer() -> None:
    JobFactory.create_batch(2)
    worker = WorkerFactory.create()

    first, second = must_claim(worker, "same"), must_claim(worker, "same")

    assert (second.job, second.lease, second.repeated) == (first.job, first.lease, True)
    assert Lease.objects.count() == 1


def test_a_key_whose_lease_has_ended_is_stale() -> None:
    job = JobFactory.create()
    worker = WorkerFactory.create()
    must_claim(worker, "old")
    Lease.objects.filter(job=job).update(released_at=ago(1))

    with pytest.raises(StaleLease):
        claim(worker, "old")


def test_a_claim_of_an_older_session_is_refused() -> None:
    JobFactory.create()
    worker = WorkerFactory.create(session=2)

    with pytest.raises(SupersededSession):
        claim_next(worker.pk, session=1, free_gpu=1, free_cpu=1, key="k")


@pytest.mark.parametrize(
    "standing",
    [
        {"scheduling": Worker.Scheduling.DRAINING},
        {"scheduling": Worker.Scheduling.DISABLED},
        {"accepting": False},
        {"last_seen_at": ago(10_000)},
        {"gateway_status": Worker.Gateway.TIMEOUT},
        {"max_cpu_jobs": 0},
    ],
    ids=["draining", "disabled", "paused", "silent", "gateway unreachable", "full"],
)
def test_a_worker_that_may_not_take_jobs_gets_none(standing: dict[str, Any]) -> None:
    JobFactory.create()

    assert claim(WorkerFactory.create(**standing)) is None


def test_a_batch_job_needs_no_gateway() -> None:
    service, batch = JobFactory.create(), JobFactory.create(mode=Job.Mode.BATCH, kind=Job.Kind.BENCHMARK)
    worker = WorkerFactory.create(gateway_status=Worker.Gateway.TIMEOUT)

    assert must_claim(worker).job == batch
    service.refresh_from_db()
    assert service.state == JobState.QUEUED


def test_a_cpu_job_does_not_go_to_a_remote_gpu_worker() -> None:
    JobFactory.create()

    assert claim(GpuWorkerFactory.create(max_cpu_jobs=4)) is None


def test_a_gpu_job_never_falls_back_to_a_cpu_worker() -> None:
    gpu_job()

    assert claim(WorkerFactory.create()) is None


def test_a_gpu_job_takes_a_whole_gpu_by_uuid() -> None:
    gpu_job()
    worker = GpuWorkerFactory.create(gpus=[{"uuid": "GPU-a"}])

    claimed = must_claim(worker)

    assert claimed.gpu_uuids == ("GPU-a",)
    assert Reservation.objects.get(lease=claimed.lease).exclusive


def test_a_reserved_gpu_is_not_given_twice_until_the_worker_says_that_nothing_is_left() -> None:
    first, second = gpu_job(), gpu_job()
    worker = GpuWorkerFactory.create()
    lease = must_claim(worker, "k1").lease
    request_stop(first.pk)
    Lease.objects.filter(pk=lease.pk).update(released_at=ago(0))  # the right ended; the container may live

    assert claim(worker, "k2") is None
    second.refresh_from_db()
    assert second.state == JobState.QUEUED


def test_the_smallest_gpu_that_is_big_enough_is_chosen() -> None:
    gpu_job(vram_mib=11_444)
    worker = GpuWorkerFactory.create(
        gpus=[
            {"uuid": "GPU-4090", "total_vram_mib": 24_564},
            {"uuid": "GPU-3060", "total_vram_mib": 12_287, "free_vram_mib": 12_000},
            {"uuid": "GPU-small", "total_vram_mib": 8_192, "free_vram_mib": 8_000},
        ]
    )

    assert must_claim(worker).gpu_uuids == ("GPU-3060",)


@pytest.mark.parametrize(
    "facts",
    [
        {"healthy": False, "error": "GPU is lost"},
        {"present": False},
        {"mig": True},
        {"foreign": [{"pid": 4711, "name": "python", "mib": 21_000}], "free_vram_mib": 3_000},
    ],
    ids=["unhealthy", "gone", "mig parent", "used by others"],
)
def test_a_gpu_that_is_not_whole_and_well_is_not_given(facts: dict[str, Any]) -> None:
    gpu_job()

    assert claim(GpuWorkerFactory.create(gpus=[facts])) is None


def test_a_small_job_passes_one_that_fits_nowhere() -> None:
    gpu_job(vram_mib=80_000)
    small = gpu_job(vram_mib=9_000)

    assert must_claim(GpuWorkerFactory.create()).job == small


def test_a_job_that_waits_for_its_predecessor_is_not_claimed() -> None:
    predecessor = JobFactory.create(state=JobState.STOPPING)
    JobFactory.create(space=predecessor.space, blocked_by=predecessor)

    assert claim(WorkerFactory.create()) is None


def test_two_gpus_are_given_together_or_not_at_all() -> None:
    gpu_job(gpu_count=2)
    worker = GpuWorkerFactory.create(gpus=[{"uuid": "GPU-a"}, {"uuid": "GPU-b", "healthy": False}])

    assert claim(worker) is None
    GpuFactory.create(worker=worker, uuid="GPU-c", index=2)
    assert must_claim(worker, "k2").gpu_uuids == ("GPU-a", "GPU-c")


@pytest.mark.django_db(transaction=True)
def test_200_claims_of_two_workers_lease_100_jobs_exactly_once_in_order_and_never_come_back_empty_too_early(
    at_once: Callable[..., list[Any]],
) -> None:
    jobs = JobFactory.create_batch(100)
    workers = [WorkerFactory.create(), WorkerFactory.create()]
    answered: list[Claim | None] = []  # in the order in which the answers came

    def ask(number: int) -> Claim | None:
        answer = claim(workers[number % 2], f"key-{number}")
        answered.append(answer)
        return answer

    answers = at_once([lambda n=n: ask(n) for n in range(200)], threads=24)

    assert [answer for answer in answers if isinstance(answer, Exception)] == []
    assert Counter(answer.job.pk for answer in answers if answer) == Counter(job.pk for job in jobs)
    # A worker's claims follow one another, so besides an empty one at most one other, with the last job, is under way.
    assert answered.index(None) >= 99
    by_time = Job.objects.order_by("leases__acquired_at").values_list("seq", flat=True)
    # The lease's time is read after the row was picked; two workers side by side may cross by one.
    assert [(a, b) for a, b in itertools.pairwise(by_time) if a - b > 1] == []


@pytest.mark.django_db(transaction=True)
def test_one_key_sent_twice_at_the_same_time_makes_one_lease(at_once: Callable[..., list[Any]]) -> None:
    JobFactory.create_batch(2)
    worker = WorkerFactory.create()
    key = str(uuid.uuid4())

    answers = at_once([lambda: claim(worker, key)] * 4)

    assert len({answer.lease.pk for answer in answers}) == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("held", [3, 10, 70])
def test_a_job_behind_any_number_of_locked_ones_is_found(held: int, at_once: Callable[..., list[Any]]) -> None:
    """Other claims hold the head of the line at this moment; none of them has committed yet."""
    jobs = JobFactory.create_batch(held + 1)
    worker = WorkerFactory.create()

    with transaction.atomic():
        locked = Job.objects.select_for_update(no_key=True).filter(pk__in=[job.pk for job in jobs[:held]])
        assert len(locked) == held
        (found,) = at_once([lambda: claim(worker)])

    assert found.job == jobs[held]
