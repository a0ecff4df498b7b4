"""Who counts as online is one rule, asked of a worker or counted for a whole fleet."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.conf import settings

from jobs.clock import database_now
from tests.factories import WorkerFactory
from workers.models import Worker

STALE = timedelta(seconds=settings.OPENFACE_GPU_WORKER_STALE_SECONDS)
SECOND = timedelta(seconds=1)


@pytest.mark.django_db
@pytest.mark.parametrize("up_for", [SECOND, STALE - SECOND, STALE + SECOND, 10 * STALE])
def test_a_fleet_is_counted_by_the_rule_that_holds_for_each(up_for: timedelta) -> None:
    now = database_now()
    for ago in (SECOND, STALE - SECOND, STALE + SECOND, 20 * STALE):
        WorkerFactory.create(last_seen_at=now - ago)
    WorkerFactory.create(last_seen_at=None)
    WorkerFactory.create(last_seen_at=now, revoked_at=now)

    counted = set(Worker.objects.online(now=now, up_since=now - up_for))

    assert counted == {worker for worker in Worker.objects.all() if worker.is_online(now=now, up_since=now - up_for)}
    assert 0 < len(counted) < 5
