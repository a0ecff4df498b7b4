"""A job that needs much is not passed for ever by jobs that need little."""

from __future__ import annotations

import itertools
import uuid
from typing import Any

import pytest
from django.conf import settings

from jobs import offers, patience
from jobs.lifecycle import request_stop
from jobs.models import Job, Lease, Reservation
from jobs.scheduling import Placement, Refusal
from jobs.states import JobState
from tests.factories import GpuWorkerFactory, JobFactory, RequirementFactory, ago
from tests.jobs.conftest import claim
from workers.models import Gpu, Worker

pytestmark = pytest.mark.django_db

LONG_AGO = 601
TWO = [{"uuid": "GPU-a"}, {"uuid": "GPU-b"}]
_keys = itertools.count()


def gpu_job(count: int = 1, *, waited: float = 0, **needs: Any) -> Job:
    requirement = RequirementFactory.create(kind="gpu", gpu_count=count, **needs)
    return JobFactory.create(requirement=requirement, queued_at=ago(waited))


def worker_with(gpus: list[dict[str, Any]], **facts: Any) -> Worker:
    prefix = uuid.uuid4().hex[:6]
    return GpuWorkerFactory.create(gpus=[gpu | {"uuid": f"{prefix}-{gpu['uuid']}"} for gpu in gpus], **facts)


def ask(worker: Worker) -> Job | None:
    found = claim(worker, f"key-{next(_keys)}")
    return found.job if found else None


def finish(job: Job) -> None:
    """The job is over and the worker has cleared it."""
    Job.objects.filter(pk=job.pk).update(state=JobState.COMPLETED)
    Lease.objects.filter(job=job).update(released_at=ago(0), cleared_at=ago(0))
    Reservation.objects.filter(lease__job=job).update(cleared_at=ago(0))


def half_busy_worker(**facts: Any) -> tuple[Worker, Job]:
    """A worker with two GPUs, and the job that has one of them."""
    worker = worker_with(TWO, **facts)
    busy = gpu_job()
    assert ask(worker) == busy
    return worker, busy


def test_a_stream_of_one_gpu_jobs_never_starves_a_two_gpu_job() -> None:
    """Two slots, and never a moment in which no small job waits: each that ends is followed by the next."""
    worker = worker_with(TWO)
    running = [gpu_job(), gpu_job()]
    assert [ask(worker), ask(worker)] == running
    large = gpu_job(2, waited=LONG_AGO)
    rounds = 0

    while large not in running:
        gpu_job()
        finish(running.pop(0))
        if (taken := ask(worker)) is not None:
            running.append(taken)
        rounds += 1
        assert rounds <= 2, "as many rounds as it needs GPUs"

    assert running == [large]
    finish(large)
    assert None not in (ask(worker), ask(worker))  # and from then on the small ones go as ever


def test_without_patience_running_out_small_jobs_pass() -> None:
    worker, _ = half_busy_worker()
    gpu_job(2, waited=LONG_AGO - 60)
    small = gpu_job()

    assert ask(worker) == small


def test_how_long_is_a_setting(settings: Any) -> None:
    settings.OPENFACE_PATIENCE_SECONDS = 30
    worker, _ = half_busy_worker()
    gpu_job(2, waited=31)
    gpu_job()

    assert ask(worker) is None


def test_a_smaller_job_that_is_older_still_goes() -> None:
    worker, _ = half_busy_worker()
    older = gpu_job()
    gpu_job(2, waited=LONG_AGO)
    gpu_job()

    assert ask(worker) == older
    assert ask(worker) is None


def test_an_older_and_a_younger_job_of_one_class_are_told_apart() -> None:
    worker = worker_with([*TWO, {"uuid": "GPU-c"}])
    busy = gpu_job()
    assert ask(worker) == busy
    older = gpu_job()
    gpu_job(3, waited=LONG_AGO)
    younger = gpu_job()

    assert ask(worker) == older
    assert ask(worker) is None  # one GPU is free, and kept
    younger.refresh_from_db()
    assert younger.state == JobState.QUEUED


def test_cpu_jobs_go_on() -> None:
    worker, _ = half_busy_worker(local=True, max_cpu_jobs=1)
    gpu_job(2, waited=LONG_AGO)
    cpu = JobFactory.create()

    assert ask(worker) == cpu


def test_a_gpu_that_is_of_no_use_to_the_large_job_is_not_kept() -> None:
    small_card = {"uuid": "GPU-3060", "total_vram_mib": 12_287, "free_vram_mib": 12_000}
    worker = worker_with([*TWO, small_card])
    busy = gpu_job(vram_mib=22_888)
    assert ask(worker) == busy
    gpu_job(2, waited=LONG_AGO, vram_mib=22_888)
    fits_the_small_card = gpu_job(vram_mib=11_444)
    gpu_job(vram_mib=22_888)

    assert ask(worker) == fits_the_small_card
    assert ask(worker) is None


def test_the_last_place_is_kept_too() -> None:
    small_card = {"uuid": "GPU-3060", "total_vram_mib": 12_287, "free_vram_mib": 12_000}
    worker = worker_with([*TWO, small_card], max_gpu_jobs=2)
    busy = gpu_job(vram_mib=22_888)
    assert ask(worker) == busy
    gpu_job(2, waited=LONG_AGO, vram_mib=22_888)
    gpu_job(vram_mib=11_444)  # would fit, in the place that the large job needs

    assert ask(worker) is None


def test_a_worker_that_could_never_run_it_keeps_nothing() -> None:
    worker = worker_with(TWO[:1])
    gpu_job(2, waited=LONG_AGO)
    small = gpu_job()

    assert ask(worker) == small


def test_a_job_for_a_named_worker_is_kept_for_there_only() -> None:
    named, _ = half_busy_worker()
    other, _ = half_busy_worker()
    gpu_job(2, waited=LONG_AGO, worker=named)
    small = gpu_job()

    assert ask(named) is None
    assert ask(other) == small


@pytest.mark.parametrize(
    "facts",
    [{"present": False}, {"healthy": False}, {"foreign": [{"pid": 1, "name": "python", "mib": 20_000}]}],
    ids=["vanished", "broken", "used by others"],
)
def test_what_keeps_it_from_fitting_and_is_not_ours_is_no_reason_to_wait(facts: dict[str, Any]) -> None:
    worker = worker_with([*TWO[:1], TWO[1] | facts])
    gpu_job(2, waited=LONG_AGO)
    small = gpu_job()

    assert ask(worker) == small


def test_a_service_job_keeps_nothing_where_the_gateway_is_closed() -> None:
    worker, _ = half_busy_worker()
    gpu_job(2, waited=LONG_AGO)
    batch = gpu_job()
    Job.objects.filter(pk=batch.pk).update(mode=Job.Mode.BATCH)
    Worker.objects.filter(pk=worker.pk).update(gateway_status=Worker.Gateway.TIMEOUT)

    assert ask(worker) == batch


def test_every_worker_that_could_run_it_keeps_its_gpus_until_one_has_it() -> None:
    first, running = half_busy_worker()
    second, _ = half_busy_worker()
    large = gpu_job(2, waited=LONG_AGO)
    small = gpu_job()
    assert (ask(first), ask(second)) == (None, None)

    finish(running)

    assert ask(first) == large
    assert ask(second) == small  # nothing is kept any more


@pytest.mark.parametrize("standing", [Worker.Scheduling.DRAINING, Worker.Scheduling.DISABLED])
def test_a_worker_that_takes_no_jobs_does_not_count_among_them(standing: Worker.Scheduling) -> None:
    worker, _ = half_busy_worker(scheduling=Worker.Scheduling.OPEN)
    Worker.objects.filter(pk=worker.pk).update(scheduling=standing)
    worker.refresh_from_db()
    gpu_job(2, waited=LONG_AGO)

    assert patience.protected_job(offers.offer_of(worker)) is None


def test_a_shared_card_is_kept_for_a_large_share() -> None:
    worker = worker_with(TWO[:1])
    busy = gpu_job(vram_mib=10_000)
    assert ask(worker) == busy
    large = gpu_job(vram_mib=20_000, waited=LONG_AGO)
    gpu_job(vram_mib=4_000)
    assert ask(worker) is None

    finish(busy)

    assert ask(worker) == large


def test_a_stopped_job_frees_what_was_kept_for_it() -> None:
    worker, _ = half_busy_worker()
    large = gpu_job(2, waited=LONG_AGO)
    small = gpu_job()
    assert ask(worker) is None

    request_stop(large.pk)

    assert ask(worker) == small


def test_a_job_out_of_attempts_keeps_nothing() -> None:
    worker, _ = half_busy_worker()
    large = gpu_job(2, waited=LONG_AGO)
    Job.objects.filter(pk=large.pk).update(attempts=patience.MAX_ATTEMPTS)
    small = gpu_job()

    assert ask(worker) == small


def test_a_waiting_job_is_told_for_whom_the_gpus_are_kept() -> None:
    worker, _ = half_busy_worker()
    large = gpu_job(2, waited=LONG_AGO)
    small = gpu_job()
    offer = offers.offer_of(worker)
    protected = patience.protected_job(offer)
    assert protected is not None and protected.job_id == large.pk
    assert patience.protected_jobs([offer]) == {worker.pk: protected}
    spec = protected.spec.__class__(kind="gpu", gpu_count=1)

    behind = patience.decide(offer, spec, mode="service", seq=small.seq, protected=protected)
    before = patience.decide(offer, spec, mode="service", seq=large.seq - 1, protected=protected)

    assert isinstance(behind, Refusal) and behind.code == "kept_for_older"
    assert f"{large.owner}/{large.repo}" in behind.sentence
    assert isinstance(before, Placement)


def test_gpus_of_a_kept_worker_are_two_again_when_both_are_free() -> None:
    """The large job needs both at the same moment: what becomes free first waits for what becomes free later."""
    worker = worker_with(TWO)
    one, two = gpu_job(), gpu_job()
    assert (ask(worker), ask(worker)) == (one, two)
    large = gpu_job(2, waited=LONG_AGO)
    gpu_job()

    finish(one)
    assert ask(worker) is None
    finish(two)

    assert ask(worker) == large
    assert Gpu.objects.filter(worker=worker, reservations__cleared_at=None).count() == 2


# Patience is 600 s here, and keeping goes on for 100 s at a time: kept 600-700, passed 700-1000, kept 1000-1100 ...
@pytest.mark.parametrize(
    ("waited", "kept"),
    [(590, False), (630, True), (710, False), (970, False), (1030, True), (1110, False), (1000 + 400 * 50 + 50, True)],
)
def test_gpus_are_kept_for_a_while_then_it_is_passed_then_they_are_kept_again(
    waited: float, kept: bool, settings: Any
) -> None:
    settings.OPENFACE_KEEP_SECONDS = 100
    worker, _ = half_busy_worker()
    gpu_job(2, waited=waited)
    small = gpu_job()

    assert ask(worker) == (None if kept else small)


def test_a_fleet_of_services_is_not_frozen_for_ever() -> None:
    """No running service ever ends; what is free beside them is idle for an hour, and then used."""
    fleet = [half_busy_worker()[0] for _ in range(2)]
    large = gpu_job(2, waited=LONG_AGO)
    small = [gpu_job() for _ in fleet]
    assert [ask(worker) for worker in fleet] == [None, None]

    Job.objects.filter(pk=large.pk).update(queued_at=ago(LONG_AGO + settings.OPENFACE_KEEP_SECONDS))

    assert [ask(worker) for worker in fleet] == small
    large.refresh_from_db()
    assert large.state == JobState.QUEUED


def test_with_no_time_to_keep_nothing_is_kept(settings: Any) -> None:
    settings.OPENFACE_KEEP_SECONDS = 0
    worker, _ = half_busy_worker()
    gpu_job(2, waited=LONG_AGO)
    small = gpu_job()

    assert ask(worker) == small
