"""Every row of the table of moves, walked by the calls that make it: reports, heartbeats, stops, and the keeper."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jobs.models import Job
from tests.factories import JobFactory, WorkerFactory
from tests.jobs.conftest import claim, must_claim
from tests.jobs.journeys import STEPS, Journey, journey

pytestmark = pytest.mark.django_db

COMING = STEPS[:3]


def test_a_queued_job_is_leased_by_a_claim() -> None:
    job = JobFactory.create()

    must_claim(WorkerFactory.create())

    job.refresh_from_db()
    assert (job.state, job.attempts) == ("leased", 1)


def test_a_queued_job_is_cancelled_by_a_stop_and_its_worker_removes_what_it_has() -> None:
    trip = journey("queued", phase="building")

    trip.stop()

    assert trip.state == "cancelled"
    assert trip.beat() == [(str(trip.lease.pk), "remove")]


@pytest.mark.parametrize("phase", STEPS)
def test_a_queued_job_whose_lease_is_renewed_goes_on_where_its_worker_is(phase: str) -> None:
    trip = journey("queued", phase="starting" if phase == "running" else phase)
    trip.phase = phase

    trip.beat()

    assert trip.state == phase
    assert trip.job.attempts == 1
    assert trip.job.leases.count() == 1


def test_a_renewal_alone_resumes_it_too() -> None:
    trip = journey("queued", phase="building")

    trip.renew()
    assert trip.state == "leased", "a renewal does not say how far the worker is"
    trip.beat()
    trip.report("starting")

    assert trip.state == "starting"


@pytest.mark.parametrize(("at", "step"), [(a, s) for a in COMING for s in STEPS if STEPS.index(s) > STEPS.index(a)])
def test_a_coming_job_takes_its_next_step(at: str, step: str) -> None:
    trip = journey(at)

    trip.report(step)

    assert trip.state == step


@pytest.mark.parametrize("at", COMING)
def test_a_coming_job_whose_lease_expires_is_queued_and_the_lease_is_not_released(at: str) -> None:
    trip = journey(at)

    trip.expire()

    trip.lease.refresh_from_db()
    assert (trip.state, trip.job.attempts, trip.lease.released_at) == ("queued", 1, None)


@pytest.mark.parametrize("at", COMING)
def test_a_coming_job_that_is_declined_is_queued_uncounted_and_may_be_taken_at_once(at: str) -> None:
    trip = journey(at)

    trip.report("declined", reason="shutdown")

    assert (trip.state, trip.job.attempts) == ("queued", 0)
    assert must_claim(WorkerFactory.create(), "k2").job == trip.job


@pytest.mark.parametrize("mode", [Job.Mode.SERVICE, Job.Mode.BATCH])
@pytest.mark.parametrize("at", ["running", "unavailable"])
def test_a_serving_job_that_its_worker_hands_back_is_queued_uncounted_and_may_run_elsewhere(at: str, mode: str) -> None:
    trip = journey(at, mode=mode)

    trip.report("declined", reason="paused", detail="The owner of this machine needs it now.")

    trip.lease.refresh_from_db()
    assert (trip.state, trip.job.attempts, trip.job.worker_id) == ("queued", 0, None)
    assert trip.lease.released_at is not None
    assert trip.beat() == [(str(trip.lease.pk), "remove")], "until the worker says that nothing of it is left"
    assert must_claim(WorkerFactory.create(), "k2").job == trip.job


@pytest.mark.parametrize("at", ["running", "unavailable"])
def test_a_job_that_ran_and_was_handed_back_ends_as_one_that_ran_when_it_is_stopped_in_the_line(at: str) -> None:
    trip = journey(at)
    trip.report("declined", reason="paused", detail="The owner of this machine needs it now.")

    trip.stop()

    assert trip.state == "completed"
    assert trip.beat() == [(str(trip.lease.pk), "remove")]


@pytest.mark.parametrize("at", COMING)
def test_a_coming_job_is_stopping_after_a_stop(at: str) -> None:
    trip = journey(at)

    trip.stop()

    assert trip.state == "stopping"


@pytest.mark.parametrize("at", [*STEPS, "unavailable"])
def test_a_job_that_its_worker_calls_failed_has_failed(at: str) -> None:
    trip = journey(at)

    trip.report("failed", reason="x", detail="It broke.")

    assert (trip.state, trip.job.reason) == ("failed", "It broke.")


@pytest.mark.parametrize("at", ["running", "unavailable"])
@pytest.mark.parametrize(
    ("mode", "code", "after"),
    [
        (Job.Mode.BATCH, 0, "completed"),
        (Job.Mode.BATCH, 3, "failed"),
        (Job.Mode.SERVICE, 0, "failed"),
        (Job.Mode.SERVICE, 3, "failed"),
    ],
)
def test_an_exit_ends_a_batch_job_by_its_code_and_a_service_always_badly(
    at: str, mode: str, code: int, after: str
) -> None:
    trip = journey(at, mode=mode)

    trip.report("exited", code=code)

    assert (trip.state, trip.job.exit_code) == (after, code)


@pytest.mark.parametrize("at", ["running", "unavailable"])
def test_a_serving_job_that_its_worker_stopped_unasked_has_failed(at: str) -> None:
    trip = journey(at)

    trip.report("stopped")

    assert trip.state == "failed"


def test_a_running_job_of_a_silent_worker_is_unavailable() -> None:
    trip = journey("running")

    trip.fall_silent()

    trip.lease.refresh_from_db()
    assert (trip.state, trip.lease.released_at) == ("unavailable", None)


@pytest.mark.parametrize("reason", ["host_rebooted", "engine_restarted"])
@pytest.mark.parametrize("at", ["running", "unavailable", "starting"])
def test_a_restart_of_host_or_engine_starts_it_again_with_the_same_lease_and_image(at: str, reason: str) -> None:
    trip = journey(at)
    Job.objects.filter(pk=trip.job.pk).update(image_id="sha256:one")

    trip.report("starting", reason=reason)

    assert (trip.state, trip.job.image_id) == ("starting", "sha256:one")
    trip.report("running")
    assert trip.state == "running"
    assert trip.job.leases.count() == 1


@pytest.mark.parametrize("at", ["running", "unavailable"])
def test_a_serving_job_is_stopping_after_a_stop_that_its_worker_can_hear(at: str) -> None:
    trip = journey(at)
    if at == "unavailable":
        trip.phase = "starting"  # heard again, and not yet serving
        trip.beat()
        assert trip.state == "unavailable"

    trip.stop()

    assert trip.state == "stopping"
    assert trip.beat() == [(str(trip.lease.pk), "stop")]


@pytest.mark.parametrize("at", ["running", "unavailable"])
def test_a_serving_job_of_a_silent_worker_is_completed_by_a_stop_at_once(at: str) -> None:
    trip = journey("running")
    trip.fall_silent()
    if at == "running":  # the keeper has not looked yet
        Job.objects.filter(pk=trip.job.pk).update(state="running")

    trip.stop()

    assert trip.state == "completed"
    assert trip.beat() == [(str(trip.lease.pk), "remove")]


@pytest.mark.parametrize(("phase", "after"), [(p, "completed" if p == "running" else "cancelled") for p in STEPS])
@pytest.mark.parametrize(
    "ends",
    [
        lambda trip: trip.report("stopped"),
        lambda trip: trip.report("exited", code=0),
        lambda trip: trip.report("exited", code=137, oom_killed=True),
        lambda trip: trip.report("failed", reason="x"),
        lambda trip: trip.fall_silent(),
        lambda trip: trip.beat(holds=False, registering=True),
    ],
    ids=["stopped", "exited", "killed", "failed", "silent", "gone"],
)
def test_a_stopping_job_ends_as_completed_if_it_ever_ran_and_as_cancelled_otherwise(
    phase: str, after: str, ends: Callable[[Journey], None]
) -> None:
    trip = journey("stopping", phase=phase)

    ends(trip)

    trip.lease.refresh_from_db()
    assert trip.state == after
    assert trip.lease.released_at is not None


def test_a_job_that_is_queued_again_keeps_its_place_in_the_line() -> None:
    trip = journey("building")
    JobFactory.create()

    trip.expire()

    assert must_claim(WorkerFactory.create(), "k2").job == trip.job


def test_a_service_waits_while_its_gateway_is_not_reachable_and_a_resumed_one_does_not() -> None:
    trip = journey("queued", phase="building")
    type(trip.worker).objects.filter(pk=trip.worker.pk).update(gateway_status="timeout")
    trip.worker.refresh_from_db()
    JobFactory.create()
    assert claim(trip.worker, "k2") is None

    trip.beat()

    assert trip.state == "building"
