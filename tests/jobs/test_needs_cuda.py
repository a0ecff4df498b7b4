"""A job whose image needs a newer CUDA than its worker has waits for one that has it, and never goes in circles."""

from __future__ import annotations

from typing import Any

import pytest

from jobs import cuda
from jobs.lifecycle import Claim, Report, record
from jobs.models import Job
from jobs.states import JobState
from jobs.waiting import why_waiting
from tests.factories import GpuWorkerFactory, JobFactory, RequirementFactory
from tests.jobs.conftest import claim, must_claim
from workers.models import Worker

pytestmark = pytest.mark.django_db
DETAIL = "Its image needs CUDA 12.8 or newer; the driver of gpu1 has 12.4."


def worker_with(version: str | None, name: str) -> Worker:
    return GpuWorkerFactory.create(name=name, capabilities={"cuda_version": version})


def gpu_job(**needs: Any) -> Job:
    return JobFactory.create(requirement=RequirementFactory.create(kind="gpu", gpu_count=1, exclusive=True, **needs))


def hand_back(worker: Worker, claimed: Claim, version: str | None) -> None:
    data = {"reason": "needs_cuda", "detail": DETAIL, "cuda": version}
    reports = [Report(1, "building", {}), Report(2, "declined", data)]
    record(worker.pk, session=1, job_id=claimed.job.pk, lease_id=claimed.lease.pk, reports=reports)


def test_a_worker_that_handed_it_back_does_not_get_it_again() -> None:
    job, old = gpu_job(), worker_with("12.4", "gpu1")
    hand_back(old, must_claim(old), "12.8")

    job.refresh_from_db()
    assert (job.state, job.attempts, job.reason) == (JobState.QUEUED, 0, DETAIL)
    assert claim(old, "k2") is None


def test_a_worker_with_a_newer_driver_takes_it() -> None:
    job, old = gpu_job(features=["cuda", "nvidia"]), worker_with("12.4", "gpu1")
    hand_back(old, must_claim(old), "12.8")

    claimed = must_claim(worker_with("12.8", "gpu2"), "k2")

    assert claimed.job == job
    assert claimed.job.requirement.features == ["cuda", "cuda-12.8", "nvidia"]


def test_who_asks_why_it_waits_is_told_what_each_worker_has() -> None:
    job, old = gpu_job(), worker_with("12.4", "gpu1")
    hand_back(old, must_claim(old), "12.8")

    job.refresh_from_db()
    waiting = why_waiting(job)

    assert waiting is not None
    [reason] = waiting.workers
    assert (reason.code, reason.never) == ("cuda_too_old", True)
    assert reason.sentence == "gpu1 has CUDA 12.4; 12.8 is needed."


def test_a_worker_that_does_not_tell_its_cuda_may_try() -> None:
    job, old = gpu_job(), worker_with("12.4", "gpu1")
    hand_back(old, must_claim(old), "12.8")

    assert must_claim(worker_with(None, "gpu2"), "k2").job == job


@pytest.mark.parametrize("version", [None, "the newest", "1000", "12.8.1", "12.4"])
def test_what_would_not_keep_it_from_the_same_worker_ends_it(version: str | None) -> None:
    job, old = gpu_job(features=["cuda-12.4"]), worker_with("12.4", "gpu1")

    hand_back(old, must_claim(old), version)

    job.refresh_from_db()
    assert (job.state, job.reason_code, job.reason) == (JobState.FAILED, "needs_cuda", DETAIL)


@pytest.mark.parametrize(
    ("features", "version", "least"),
    [
        ((), "12.8", "12.8"),
        (("cuda-12.8",), "12.4", "12.8"),
        (("cuda-9.2", "cuda"), "12", "12"),
        ((), "13.10", "13.10"),
    ],
)
def test_the_newest_that_was_asked_for_counts(features: tuple[str, ...], version: str, least: str) -> None:
    needed = cuda.needing(features, version)

    assert cuda.least(needed) == least
    assert cuda.without(needed) == cuda.without(features)


@pytest.mark.parametrize(
    ("have", "wanted", "older"),
    [
        ("12.4", "12.8", True),
        ("12.10", "12.8", False),
        ("12", "12.0", False),
        ("13.0", "12.8", False),
        ("", "9", False),
    ],
)
def test_versions_are_compared_as_numbers(have: str, wanted: str, older: bool) -> None:
    assert cuda.is_older(have, wanted) is older
