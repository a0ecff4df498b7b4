"""Why a job waits: the claim's own judgement for each worker and GPU, the nearest first, and its place in the line."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django import Settings

from jobs.models import Job
from jobs.waiting import Waiting, why_all_wait, why_waiting
from tests.factories import GpuWorkerFactory, JobFactory, RequirementFactory, SpaceFactory, WorkerFactory, ago
from tests.jobs.conftest import claim, must_claim
from workers import standing
from workers.models import Worker

pytestmark = pytest.mark.django_db

WHOLE = {"kind": "gpu", "gpu_count": 1, "exclusive": True}
BUSY_PROCESS = {"foreign": [{"pid": 4711, "name": "python", "mib": 21_504}], "free_vram_mib": 3_072}


def waits(job: Job) -> Waiting:
    found = why_waiting(Job.objects.select_related("requirement").get(pk=job.pk))
    assert found is not None
    return found


def gpu_job(*, name: str = "", **needs: Any) -> Job:
    space = {"space": SpaceFactory.create(name=name)} if name else {}
    return JobFactory.create(requirement=RequirementFactory.create(**{**WHOLE, **needs}), **space)


def codes(waiting: Waiting) -> list[tuple[str, str]]:
    return [(reason.name, reason.code) for reason in waiting.workers]


# --- the sentences ---------------------------------------------------------------------------------------------------


def test_without_workers_it_says_so() -> None:
    assert (waits(gpu_job()).code, waits(gpu_job()).workers) == ("no_worker", ())


def test_a_worker_that_would_take_it_comes_first() -> None:
    GpuWorkerFactory.create(name="away", last_seen_at=ago(3600))
    GpuWorkerFactory.create(name="free")

    found = waits(gpu_job())

    assert found.code == "about_to_start"
    assert codes(found) == [("free", "would_fit"), ("away", "worker_offline")]


def test_workers_are_in_the_order_in_which_they_come_into_question() -> None:
    WorkerFactory.create(name="a-cpu")
    GpuWorkerFactory.create(name="b-away", last_seen_at=ago(3600))
    GpuWorkerFactory.create(name="c-draining", scheduling="draining")
    GpuWorkerFactory.create(name="d-busy", gpus=[BUSY_PROCESS])

    assert codes(waits(gpu_job())) == [
        ("d-busy", "gpus_busy"),
        ("c-draining", "worker_draining"),
        ("b-away", "worker_offline"),
        ("a-cpu", "no_gpu"),
    ]


def test_each_gpu_has_its_sentence() -> None:
    GpuWorkerFactory.create(name="gpu1", gpus=[BUSY_PROCESS, {"healthy": False, "error": "GPU is lost"}])

    (reason,) = waits(gpu_job()).workers

    assert [(said.gpu, said.code, said.reason) for said in reason.sentences()] == [
        (
            "GPU 0",
            "gpu_foreign_use",
            "gpu1 / NVIDIA GeForce RTX 4090: 3.0 of 24.0 GB free, 21.0 GB used by processes that are not ours: "
            "python (pid 4711)",
        ),
        ("GPU 1", "gpu_unhealthy", "gpu1 / NVIDIA GeForce RTX 4090: GPU is lost"),
    ]


def test_a_free_gpu_of_a_worker_with_too_few_of_them_is_told_too() -> None:
    GpuWorkerFactory.create(name="gpu1", gpus=[BUSY_PROCESS, {}])

    (reason,) = waits(gpu_job(gpu_count=2)).workers

    assert [(said.gpu, said.code) for said in reason.sentences()] == [
        ("GPU 0", "gpu_foreign_use"),
        ("GPU 1", "gpu_free_alone"),
    ]


def test_switched_off_workers_are_the_reason(settings: Settings) -> None:
    settings.OPENFACE_GPU_WORKERS_ENABLED = False
    GpuWorkerFactory.create(name="gpu1")

    assert waits(gpu_job()).code == "gpu_workers_disabled"


def test_a_job_that_no_worker_can_ever_take_says_so() -> None:
    GpuWorkerFactory.create(name="gpu1")

    found = waits(gpu_job(vram_mib=60_000))

    assert found.code == "no_compatible_worker"
    assert all(reason.never for reason in found.workers)


def test_it_never_says_otherwise_than_the_claim() -> None:
    """Whatever is said, a worker that is said to take it takes it, and no other does."""
    workers = [
        WorkerFactory.create(name="cpu"),
        GpuWorkerFactory.create(name="free"),
        GpuWorkerFactory.create(name="small", gpus=[{"total_vram_mib": 8_192, "free_vram_mib": 8_000}]),
        GpuWorkerFactory.create(name="used", gpus=[BUSY_PROCESS]),
        GpuWorkerFactory.create(name="off", scheduling="disabled"),
        GpuWorkerFactory.create(name="dark", gateway_status=Worker.Gateway.TIMEOUT),
    ]
    job = gpu_job(vram_mib=11_444, exclusive=False)
    found = {reason.name: reason.refusal is None for reason in waits(job).workers}

    for worker in sorted(workers, key=lambda worker: found[worker.name]):  # the one that takes it comes last
        assert (claim(worker, key=worker.name) is not None) == found[worker.name]


# --- a named worker --------------------------------------------------------------------------------------------------


def test_a_named_worker_that_is_away_is_the_reason_whatever_others_offer() -> None:
    GpuWorkerFactory.create(name="free")
    named = GpuWorkerFactory.create(name="named", last_seen_at=ago(3600))

    found = waits(gpu_job(worker=named))

    assert (found.code, found.sentence) == ("named_worker_waits", "An operator placed it on named. named is offline.")
    assert codes(found) == [("named", "worker_offline"), ("free", "other_worker_named")]


def test_a_named_worker_that_was_revoked_is_the_reason() -> None:
    GpuWorkerFactory.create(name="free")
    named = GpuWorkerFactory.create(name="named")
    job = gpu_job(worker=named)
    standing.revoke(named.pk, actor=None)

    found = waits(job)

    assert (found.code, found.sentence) == (
        "named_worker_revoked",
        "An operator placed it on named, which was revoked.",
    )
    assert codes(found)[0] == ("named", "worker_revoked")


def test_a_named_worker_that_can_never_take_it_is_the_reason() -> None:
    named = WorkerFactory.create(name="named")

    assert waits(gpu_job(worker=named)).code == "named_worker_unfit"


def test_an_enrolled_worker_that_never_reported_counts_as_away() -> None:
    named = GpuWorkerFactory.create(name="named", last_seen_at=None)

    found = waits(gpu_job(worker=named))

    assert (found.code, codes(found)) == ("named_worker_waits", [("named", "worker_offline")])


# --- an older one goes first -----------------------------------------------------------------------------------------


def test_gpus_that_are_kept_for_an_older_job_are_told_with_its_name(settings: Settings) -> None:
    worker = GpuWorkerFactory.create(name="gpu1", gpus=[{}, {}])
    gpu_job(name="small")
    must_claim(worker)
    older = gpu_job(name="large", gpu_count=2)
    Job.objects.filter(pk=older.pk).update(queued_at=ago(settings.OPENFACE_PATIENCE_SECONDS + 60))
    behind = gpu_job(name="behind")

    found = waits(behind)

    assert found.code == "kept_for_older"
    (reason,) = found.workers
    assert reason.refusal is not None and reason.refusal.facts["space"] == "owner/large"
    assert claim(worker, key="again") is None
    assert waits(older).code == "gpus_busy"


# --- not for a worker ------------------------------------------------------------------------------------------------


def test_a_job_whose_last_attempt_expired_stands_in_no_line() -> None:
    last, other = JobFactory.create(attempts=3), JobFactory.create()

    assert (waits(last).code, waits(last).place) == ("last_chance", None)
    assert waits(other).place == 1


def test_a_job_behind_its_predecessor_stands_in_no_line() -> None:
    running = JobFactory.create(state="stopping")
    behind = JobFactory.create(space=running.space, blocked_by=running)
    other = JobFactory.create()

    assert (waits(behind).code, waits(behind).place) == ("predecessor_stopping", None)
    assert waits(other).place == 1


def test_a_job_that_does_not_wait_has_no_reasons() -> None:
    assert why_waiting(JobFactory.create(state="running")) is None


# --- the line --------------------------------------------------------------------------------------------------------


def test_places_follow_submission_across_all_kinds_of_needs() -> None:
    jobs = [gpu_job(), JobFactory.create(), gpu_job(vram_mib=11_444), JobFactory.create(), gpu_job()]

    assert [waits(job).place for job in jobs] == [1, 2, 3, 4, 5]


def test_places_are_counted_to_a_hundred() -> None:
    jobs = JobFactory.create_batch(102)

    found = [(waits(job).place, waits(job).place_capped) for job in (jobs[99], jobs[100], jobs[101])]

    assert found == [(100, False), (101, True), (101, True)]


def test_fifty_jobs_and_twenty_workers_cost_as_little_as_one(django_assert_max_num_queries: Any) -> None:
    named = GpuWorkerFactory.create(name="named")
    for number in range(19):
        GpuWorkerFactory.create(name=f"gpu{number}", gpus=[BUSY_PROCESS, {}])
    standing.revoke(named.pk, actor=None)
    for number in range(50):
        gpu_job(vram_mib=1_000 * (number % 9 + 1), worker=named if number % 5 == 0 else None)
    jobs = list(Job.objects.select_related("requirement"))

    with django_assert_max_num_queries(18):
        found = why_all_wait(jobs)

    assert len(found) == 50
    assert {len(waiting.workers) for waiting in found.values()} == {20}
