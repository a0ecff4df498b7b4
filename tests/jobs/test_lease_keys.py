"""OPENFACE_LEASE_KEYS is rotated while Spaces run: new leases use the newest key, and no running app is cut off."""

from __future__ import annotations

from typing import Any

import pytest

from jobs import tokens
from jobs.lifecycle import Hold, sync_holds
from tests.factories import JobFactory, WorkerFactory
from tests.jobs.conftest import must_claim
from tests.jobs.journeys import journey

pytestmark = pytest.mark.django_db

OLD, NEW = "k1:" + "ab" * 32, "k2:" + "ef" * 32


def test_a_lease_keeps_its_token_while_its_key_is_listed_and_new_leases_use_the_newest(settings: Any) -> None:
    settings.OPENFACE_LEASE_KEYS = [OLD]
    trip = journey("running")
    before = tokens.runtime_token(trip.lease)

    settings.OPENFACE_LEASE_KEYS = [NEW, OLD]

    (told,) = sync_holds(trip.worker.pk, holds=[Hold(trip.lease.pk, "running")])
    assert told.runtime_token == before
    JobFactory.create()
    assert must_claim(WorkerFactory.create(), "k2").lease.key_id == "k2"


def test_a_lease_whose_key_was_dropped_gets_a_token_of_the_newest_in_the_next_heartbeat(settings: Any) -> None:
    settings.OPENFACE_LEASE_KEYS = [OLD]
    trip = journey("running")

    settings.OPENFACE_LEASE_KEYS = [NEW]
    (told,) = sync_holds(trip.worker.pk, holds=[Hold(trip.lease.pk, "running")])

    trip.lease.refresh_from_db()
    assert trip.lease.key_id == "k2"
    assert told.runtime_token == tokens.runtime_token(trip.lease)
    assert (told.want, trip.state) == ("keep", "running")


def test_a_released_lease_gets_no_new_token(settings: Any) -> None:
    settings.OPENFACE_LEASE_KEYS = [OLD]
    trip = journey("running")
    trip.report("stopped")

    settings.OPENFACE_LEASE_KEYS = [NEW]
    (told,) = sync_holds(trip.worker.pk, holds=[Hold(trip.lease.pk, "exited")])

    trip.lease.refresh_from_db()
    assert (trip.lease.key_id, told.want, told.runtime_token) == ("k1", "remove", None)
