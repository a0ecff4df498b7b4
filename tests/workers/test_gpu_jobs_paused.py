"""A worker whose owner uses a GPU: it takes no GPU jobs and says why, and CPU jobs it takes, until that is over."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from jobs.models import Job
from jobs.states import JobState
from jobs.waiting import why_waiting
from tests.factories import JobFactory, RequirementFactory, UserFactory
from tests.workers.conftest import GPU, WireWorker
from workers.models import Worker

pytestmark = pytest.mark.django_db

REASON = "GPU 0 is in use by its owner: secret-game.exe (pid 4711)."


def capabilities(worker: WireWorker, reason: str | None) -> dict[str, Any]:
    return {
        "worker_id": worker.id,
        "worker_version": "0.1.0",
        "executor": "docker",
        "max_jobs": {"gpu": 2, "cpu": 4},
        "features": ["cpu", "nvidia", "cuda"],
        "gpu_paused_reason": reason,
    }


@pytest.fixture
def worker(enroll: Any) -> WireWorker:
    found: WireWorker = enroll("gpu1", gpus=[GPU], local=True)
    assert found.heartbeat(capabilities=capabilities(found, REASON)).status_code == 200
    return found


def queued(kind: str) -> Job:
    count = 1 if kind == "gpu" else 0
    job: Job = JobFactory.create(
        state=JobState.QUEUED, mode="batch", requirement=RequirementFactory.create(kind=kind, gpu_count=count)
    )
    return job


def fleet(**facts: Any) -> str:
    client = Client()
    client.force_login(UserFactory.create(**facts))
    return client.get("/fleet/").content.decode()


def test_it_gets_no_gpu_job_and_the_line_says_why(worker: WireWorker) -> None:
    job = queued("gpu")

    assert worker.claim().status_code == 204

    waiting = why_waiting(Job.objects.select_related("requirement").get(pk=job.pk))
    assert waiting is not None
    [reason] = waiting.workers
    assert (reason.code, reason.never) == ("gpu_jobs_paused", False)
    assert reason.sentence == f"gpu1 takes no GPU jobs now: {REASON}"


def test_it_gets_cpu_jobs(worker: WireWorker) -> None:
    queued("gpu")
    cpu = queued("cpu")

    answer = worker.claim()

    assert (answer.status_code, answer.json()["id"]) == (200, str(cpu.pk))


def test_it_gets_gpu_jobs_again_when_it_says_nothing_of_it(worker: WireWorker) -> None:
    job = queued("gpu")
    worker.heartbeat()
    assert worker.claim().status_code == 204, "what was said holds until it is said otherwise"

    worker.heartbeat(capabilities=capabilities(worker, None))

    assert worker.claim().json()["id"] == str(job.pk)


def test_the_fleet_page_says_so_and_names_the_process_to_operators_only(worker: WireWorker) -> None:
    visitor, operator = fleet(), fleet(is_staff=True)

    assert "Takes no GPU jobs now: its owner uses a GPU." in visitor
    assert "secret-game" not in visitor
    assert "secret-game.exe (pid 4711)" in operator


def test_it_is_not_told_of_a_worker_that_is_paused_altogether(worker: WireWorker) -> None:
    worker.heartbeat(accepting=False, paused_reason="lunch")

    page = fleet()

    assert "Takes no jobs for the moment." in page and "Takes no GPU jobs now" not in page
    assert Worker.objects.get().gpu_paused_reason == REASON
