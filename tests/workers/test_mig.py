"""A card that is split into MIG devices: jobs run on its parts, never on the whole, and it is counted once."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from jobs.states import JobState
from tests.factories import JobFactory, RequirementFactory, UserFactory
from tests.workers.conftest import GPU, WireWorker

pytestmark = pytest.mark.django_db

WHOLE = GPU | {"uuid": "GPU-a100", "model": "NVIDIA A100", "total_vram_mib": 40960, "free_vram_mib": 40000, "mig": True}
PARTS = [
    GPU
    | {
        "uuid": f"MIG-{number}",
        "model": "NVIDIA A100 MIG 2g.10gb",
        "total_vram_mib": 9856,
        "free_vram_mib": 9800,
        "mig": False,
    }
    for number in (1, 2)
]


@pytest.fixture
def worker(enroll: Any) -> WireWorker:
    found: WireWorker = enroll("gpu1", gpus=[WHOLE, *PARTS])
    return found


def claimed(worker: WireWorker, **needs: Any) -> list[str] | None:
    JobFactory.create(
        state=JobState.QUEUED, mode="batch", requirement=RequirementFactory.create(kind="gpu", gpu_count=1, **needs)
    )
    answer = worker.claim()
    return sorted(answer.json()["gpus"]) if answer.status_code == 200 else None


@pytest.fixture(autouse=True)
def remote_workers(settings: Any) -> None:
    settings.OPENFACE_GPU_WORKERS_ENABLED = True


def test_each_part_is_given_once_and_the_whole_never(worker: WireWorker) -> None:
    given = [claimed(worker), claimed(worker)]

    assert sorted(given, key=str) == [["MIG-1"], ["MIG-2"]]
    assert claimed(worker) is None


def test_a_job_that_needs_more_than_a_part_is_not_placed(worker: WireWorker) -> None:
    assert claimed(worker, vram_mib=20_980) is None


def test_a_part_whose_memory_is_not_known_is_given_as_a_whole(worker: WireWorker) -> None:
    worker.gpus = [WHOLE, PARTS[0] | {"total_vram_mib": None, "free_vram_mib": None}]

    assert claimed(worker) == ["MIG-1"]


def test_the_fleet_counts_the_parts_and_not_the_whole_once_more(worker: WireWorker) -> None:
    client = Client()
    client.force_login(UserFactory.create())

    page = re.sub(r"\s+", " ", client.get("/fleet/").content.decode())

    assert "Split into MIG instances" in page
    assert f"of {(2 * 9856) / 1024:.1f} GB" in page
