"""After its worker was revoked a Space can be started elsewhere or stopped at once: nobody waits for the dead."""

from __future__ import annotations

import pytest

from jobs.lifecycle import Submission, cut_off_worker, request_stop, submit
from jobs.models import Lease, Reservation
from jobs.scheduling import RequirementSpec
from tests.factories import REVISION, GpuWorkerFactory, JobFactory, RequirementFactory, WorkerFactory
from tests.jobs.conftest import must_claim
from tests.jobs.journeys import STEPS, Journey, journey

pytestmark = pytest.mark.django_db


def revoke(trip: Journey) -> None:
    cut_off_worker(trip.worker.pk, reason_code="worker_revoked", reason="It was revoked.", cleared=True)


@pytest.mark.parametrize("at", STEPS[:3])
def test_what_was_coming_goes_back_to_the_line_uncounted(at: str) -> None:
    trip = journey(at)

    revoke(trip)

    assert (trip.state, trip.job.attempts) == ("queued", 0)
    assert must_claim(WorkerFactory.create(), "k2").job == trip.job


@pytest.mark.parametrize("at", ["running", "unavailable"])
def test_what_ran_is_unavailable_and_a_stop_ends_it_at_once(at: str) -> None:
    trip = journey(at)
    revoke(trip)
    assert trip.state == "unavailable"

    request_stop(trip.job.pk)

    assert trip.state == "completed"


def test_what_was_being_stopped_is_stopped() -> None:
    trip = journey("stopping", phase="running")

    revoke(trip)

    assert trip.state == "completed"


def test_a_restart_elsewhere_waits_for_nobody() -> None:
    trip = journey("running")
    revoke(trip)
    space = trip.job.space

    new = submit(
        Submission(space.pk, space.repository_id, space.owner, space.name, REVISION, RequirementSpec("cpu")),
        replace=True,
    )

    new.refresh_from_db()
    assert (trip.state, new.blocked_by) == ("completed", None)
    assert must_claim(WorkerFactory.create(), "k2").job == new


def test_its_leases_are_released_and_cleared_and_its_reservations_end() -> None:
    JobFactory.create(requirement=RequirementFactory.create(kind="gpu", gpu_count=1))
    worker = GpuWorkerFactory.create()
    lease = must_claim(worker).lease

    cut_off_worker(worker.pk, reason_code="worker_revoked", reason="It was revoked.", cleared=True)

    lease.refresh_from_db()
    assert lease.released_at is not None
    assert not Lease.objects.filter(cleared_at=None).exists()
    assert not Reservation.objects.filter(cleared_at=None).exists()
