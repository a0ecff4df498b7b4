"""Workers that fall silent, come back, and say what they have."""

from __future__ import annotations

import pytest

from jobs import rescue
from jobs.lifecycle import Hold, Report, cut_off_worker, record, sync_holds
from jobs.models import Lease, Reservation
from jobs.states import JobState
from tests.factories import GpuWorkerFactory, JobFactory, RequirementFactory, WorkerFactory, ago
from tests.jobs.conftest import claim, must_claim
from tests.jobs.test_stop import job_at
from workers.models import Worker

pytestmark = pytest.mark.django_db


def fall_silent(worker: Worker) -> None:
    Worker.objects.filter(pk=worker.pk).update(last_seen_at=ago(1_000))
    rescue.sweep()


def test_a_running_job_of_a_silent_worker_is_unavailable_and_says_since_when() -> None:
    job, worker, lease = job_at("running")

    fall_silent(worker)

    job.refresh_from_db()
    lease.refresh_from_db()
    assert (job.state, job.reason_code) == (JobState.UNAVAILABLE, "worker_silent")
    assert worker.name in job.reason
    assert lease.released_at is None


def test_it_is_running_again_when_the_worker_returns_with_it() -> None:
    job, worker, lease = job_at("running")
    fall_silent(worker)

    sync_holds(worker.pk, holds=[Hold(lease.pk, "running")])

    job.refresh_from_db()
    assert job.state == JobState.RUNNING


def test_a_rebooted_host_starts_it_again_under_the_same_lease() -> None:
    job, worker, lease = job_at("running")
    fall_silent(worker)
    sync_holds(worker.pk, holds=[Hold(lease.pk, "starting")], registering=True)
    seq = lease.accepted_through

    for number, report in enumerate([("starting", {"reason": "host_rebooted"}), ("running", {})], start=seq + 1):
        record(worker.pk, session=1, job_id=job.pk, lease_id=lease.pk, reports=[Report(number, *report)])

    job.refresh_from_db()
    assert job.state == JobState.RUNNING
    assert [event.to_state for event in job.events.all()][-3:] == ["unavailable", "starting", "running"]
    assert job.leases.count() == 1


def test_a_claim_whose_answer_was_lost_goes_back_uncounted_when_the_worker_registers_without_it() -> None:
    job = JobFactory.create()
    worker = WorkerFactory.create()
    lease = must_claim(worker).lease

    sync_holds(worker.pk, holds=[], registering=True)

    job.refresh_from_db()
    lease.refresh_from_db()
    assert (job.state, job.attempts, job.reason_code) == (JobState.QUEUED, 0, "claim_answer_lost")
    assert lease.cleared_at is not None


def test_a_heartbeat_that_was_written_before_the_claim_does_not_lose_it() -> None:
    job = JobFactory.create()
    worker = WorkerFactory.create()
    must_claim(worker)

    for _ in range(3):
        sync_holds(worker.pk, holds=[])

    job.refresh_from_db()
    assert job.state == JobState.LEASED


def test_two_settled_heartbeats_without_it_lose_it() -> None:
    job = JobFactory.create()
    worker = WorkerFactory.create()
    lease = must_claim(worker).lease
    Lease.objects.filter(pk=lease.pk).update(acquired_at=ago(600))

    sync_holds(worker.pk, holds=[])
    job.refresh_from_db()
    assert job.state == JobState.LEASED
    sync_holds(worker.pk, holds=[])

    job.refresh_from_db()
    assert job.state == JobState.QUEUED


def test_a_running_job_that_its_worker_no_longer_has_failed() -> None:
    job, worker, _ = job_at("running")

    sync_holds(worker.pk, holds=[], registering=True)

    job.refresh_from_db()
    assert (job.state, job.reason_code) == (JobState.FAILED, "container_lost")


def test_no_answer_of_the_engine_changes_nothing_and_renews_all() -> None:
    job, worker, lease = job_at("running")
    Lease.objects.update(expires_at=ago(5))

    sync_holds(worker.pk, holds=None, registering=True)

    job.refresh_from_db()
    lease.refresh_from_db()
    assert job.state == JobState.RUNNING
    assert lease.expires_at > ago(0)


def test_a_reservation_counts_until_the_worker_says_that_nothing_is_left() -> None:
    first = JobFactory.create(requirement=RequirementFactory.create(kind="gpu", gpu_count=1))
    worker = GpuWorkerFactory.create()
    lease = must_claim(worker).lease
    record(worker.pk, session=1, job_id=first.pk, lease_id=lease.pk, reports=[Report(1, "failed", {"reason": "x"})])
    JobFactory.create(requirement=RequirementFactory.create(kind="gpu", gpu_count=1))

    (told,) = sync_holds(worker.pk, holds=[Hold(lease.pk, "stopped")])
    assert told.want == "remove"
    assert claim(worker, "k2") is None

    assert sync_holds(worker.pk, holds=[]) == []
    assert not Reservation.objects.filter(cleared_at=None).exists()
    assert must_claim(worker, "k3").gpu_uuids


def test_a_lease_that_we_do_not_know_is_held_and_one_that_is_over_is_removed() -> None:
    _, worker, lease = job_at("running")
    stranger = job_at("running")[2]
    sync_holds(worker.pk, holds=[], registering=True)

    told = {i.lease_id: i.want for i in sync_holds(worker.pk, holds=[Hold(lease.pk, "x"), Hold(stranger.pk, "x")])}

    assert told == {lease.pk: "remove", stranger.pk: "hold"}


def test_a_job_taken_by_another_worker_is_removed_at_the_first_on_its_return() -> None:
    job = JobFactory.create()
    away, other = WorkerFactory.create(), WorkerFactory.create()
    old = must_claim(away).lease
    Lease.objects.update(expires_at=ago(1))
    rescue.sweep()
    new = must_claim(other).lease

    (told,) = sync_holds(away.pk, holds=[Hold(old.pk, "running")])

    assert told.want == "remove"
    job.refresh_from_db()
    assert (job.state, job.worker) == (JobState.LEASED, other)
    assert new.attempt == 2


def test_cutting_a_worker_off_queues_what_was_coming_and_shows_what_ran_as_unavailable() -> None:
    coming, running = JobFactory.create(), JobFactory.create()
    worker = WorkerFactory.create()
    must_claim(worker, "k1")
    lease = must_claim(worker, "k2").lease
    record(worker.pk, session=1, job_id=running.pk, lease_id=lease.pk, reports=[Report(1, "running")])

    ended = cut_off_worker(worker.pk, reason_code="worker_revoked", reason="It was revoked.", cleared=True)

    coming.refresh_from_db()
    running.refresh_from_db()
    assert ended == 2
    assert (coming.state, coming.attempts, running.state) == (JobState.QUEUED, 0, JobState.UNAVAILABLE)
    assert not Lease.objects.filter(cleared_at=None).exists()
