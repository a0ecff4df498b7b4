"""A small fleet for lifecycle tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_django import Settings

from jobs.lifecycle import Claim, claim_next
from jobs.models import Lease
from tests.factories import JobFactory, UptimeFactory
from tests.jobs.results import lease_of
from workers.models import Worker


def claim(worker: Worker, key: str = "key-1", *, gpu: int = 100, cpu: int = 100) -> Claim | None:
    """Claim for a worker in its present session."""
    return claim_next(worker.pk, session=worker.session, free_gpu=gpu, free_cpu=cpu, key=key)


def must_claim(worker: Worker, key: str = "key-1") -> Claim:
    claimed = claim(worker, key)
    assert claimed is not None
    return claimed


@pytest.fixture(autouse=True)
def up_for_a_day(request: pytest.FixtureRequest) -> None:
    """Where a test uses the database, the control plane has been up for long: silence counts."""
    if request.node.get_closest_marker("django_db"):
        request.getfixturevalue("transactional_db" if _is_transactional(request) else "db")
        UptimeFactory.create()


def _is_transactional(request: pytest.FixtureRequest) -> bool:
    return any(marker.kwargs.get("transaction") for marker in request.node.iter_markers("django_db"))


@pytest.fixture
def results_directory(settings: Settings, tmp_path: Path) -> None:
    """A place for results of its own, and a quota that a few bytes exceed."""
    settings.OPENFACE_ARTIFACTS_DIR = tmp_path / "artifacts"
    settings.OPENFACE_ARTIFACT_FILE_MAX_BYTES = 100
    settings.OPENFACE_ARTIFACT_JOB_MAX_BYTES = 150
    settings.OPENFACE_ARTIFACT_JOB_MAX_FILES = 3
    settings.OPENFACE_ARTIFACT_DISK_FLOOR_MIB = 1


@pytest.fixture
def lease(results_directory: None, db: None) -> Lease:
    """Of a batch job that runs."""
    return lease_of(JobFactory.create(mode="batch", state="running"))
