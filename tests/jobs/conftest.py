"""A small fleet for lifecycle tests."""

from __future__ import annotations

import pytest

from jobs.lifecycle import Claim, claim_next
from tests.factories import UptimeFactory
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
