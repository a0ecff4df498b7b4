"""The database is an older copy than the fleet: what is not known is held, never removed, and nobody is sent away."""

from __future__ import annotations

import uuid

import pytest

from jobs.errors import StaleLease, SupersededSession, UnknownJob
from jobs.lifecycle import Hold, Report, record, renew_lease, sync_holds
from jobs.models import Lease
from tests.factories import JobFactory, WorkerFactory
from tests.jobs.conftest import claim, must_claim
from tests.jobs.journeys import journey
from workers.models import Worker

pytestmark = pytest.mark.django_db


def test_a_lease_that_we_have_no_row_of_is_held() -> None:
    worker, unknown = WorkerFactory.create(), uuid.uuid4()

    (told,) = sync_holds(worker.pk, holds=[Hold(unknown, "running")])

    assert (told.lease_id, told.want) == (unknown, "hold")


def test_a_report_under_it_is_no_stale_lease_for_that_would_remove_the_app() -> None:
    job, worker = JobFactory.create(), WorkerFactory.create()

    with pytest.raises(UnknownJob):
        record(worker.pk, session=1, job_id=job.pk, lease_id=uuid.uuid4(), reports=[Report(7, "health")])
    with pytest.raises(UnknownJob):
        renew_lease(worker.pk, session=1, job_id=job.pk, lease_id=uuid.uuid4())


def test_a_lease_that_we_know_to_be_over_is_still_stale() -> None:
    trip = journey("running")
    trip.report("stopped")

    with pytest.raises(StaleLease):
        trip.report("running")


def test_the_job_of_a_held_lease_may_run_anew_beside_it() -> None:
    job, worker = JobFactory.create(), WorkerFactory.create()
    unknown = Hold(uuid.uuid4(), "running")
    sync_holds(worker.pk, holds=[unknown])

    lease = must_claim(worker).lease

    told = {each.lease_id: each.want for each in sync_holds(worker.pk, holds=[unknown, Hold(lease.pk, "leased")])}
    assert told == {unknown.lease_id: "hold", lease.pk: "keep"}
    job.refresh_from_db()
    assert job.state == "leased"


def test_a_session_that_is_ahead_of_ours_is_the_newest_there_is() -> None:
    job, worker = JobFactory.create(), WorkerFactory.create(session=3)
    worker.session = 5  # as the worker counts; our row is from an older copy

    lease = must_claim(worker).lease
    renew_lease(worker.pk, session=5, job_id=job.pk, lease_id=lease.pk)
    taken = record(worker.pk, session=5, job_id=job.pk, lease_id=lease.pk, reports=[Report(1, "building")])

    assert taken.state == "building"


def test_an_older_session_is_superseded_as_ever() -> None:
    trip = journey("running")
    Worker.objects.filter(pk=trip.worker.pk).update(session=2)

    with pytest.raises(SupersededSession):
        trip.renew()
    with pytest.raises(SupersededSession):
        claim(trip.worker, "k2")
    with pytest.raises(SupersededSession):
        record(trip.worker.pk, session=1, job_id=trip.job.pk, lease_id=trip.lease.pk, reports=[Report(9, "running")])


def test_a_session_number_out_of_all_bounds_is_refused() -> None:
    worker = WorkerFactory.create(session=3)
    worker.session = 2**31 - 1

    with pytest.raises(SupersededSession):
        claim(worker)


def test_events_that_an_older_copy_has_not_seen_are_made_up_for_by_a_snapshot() -> None:
    trip = journey("running")
    Lease.objects.filter(pk=trip.lease.pk).update(accepted_through=0)
    type(trip.job).objects.filter(pk=trip.job.pk).update(state="leased")

    (told,) = sync_holds(trip.worker.pk, holds=[Hold(trip.lease.pk, "running")])
    assert told.next_seq == 1, "the worker sees that we have less than we had confirmed"
    trip.report("snapshot", state="running")

    assert trip.state == "running"


def test_a_job_that_ran_when_the_copy_was_made_and_is_gone_now_has_failed_and_says_why() -> None:
    trip = journey("running")

    trip.beat(holds=False, registering=True)

    assert (trip.state, trip.job.reason_code) == ("failed", "container_lost")
