"""A lease that nobody renews: the job goes back to the line, and the same attempt may still resume."""

from __future__ import annotations

import pytest

from jobs import rescue
from jobs.lifecycle import Hold, Report, record, renew_lease, sync_holds
from jobs.models import Job, Lease, Uptime
from jobs.states import JobState
from tests.factories import JobFactory, WorkerFactory, ago
from tests.jobs.conftest import claim, must_claim

pytestmark = pytest.mark.django_db


def expire(lease: Lease) -> None:
    Lease.objects.filter(pk=lease.pk).update(expires_at=ago(1))
    rescue.sweep()


def test_the_job_of_an_expired_lease_returns_to_the_queue_and_keeps_its_place() -> None:
    job = JobFactory.create()
    JobFactory.create()
    claimed = must_claim(WorkerFactory.create())

    expire(claimed.lease)

    job.refresh_from_db()
    assert (job.state, job.attempts, job.reason_code) == (JobState.QUEUED, 1, "lease_expired")
    assert must_claim(WorkerFactory.create()).job == job


def test_an_expired_lease_is_not_released_until_another_claim() -> None:
    JobFactory.create()
    first = must_claim(WorkerFactory.create()).lease
    expire(first)
    first.refresh_from_db()
    assert first.released_at is None

    second = must_claim(WorkerFactory.create()).lease

    first.refresh_from_db()
    assert first.released_at is not None
    assert (second.attempt, second.job) == (2, first.job)


def test_a_claim_that_was_late_on_its_way_takes_no_job_that_its_worker_has_already() -> None:
    worker = WorkerFactory.create()
    JobFactory.create()
    first = must_claim(worker).lease
    expire(first)
    younger = JobFactory.create()

    assert must_claim(worker, "late").job == younger
    assert claim(worker, "later") is None
    assert must_claim(WorkerFactory.create()).job == first.job


def test_a_renewal_before_another_claim_resumes_the_same_attempt() -> None:
    job = JobFactory.create()
    worker = WorkerFactory.create()
    lease = must_claim(worker).lease
    expire(lease)

    renew_lease(worker.pk, session=worker.session, job_id=job.pk, lease_id=lease.pk)

    job.refresh_from_db()
    assert (job.state, job.worker, job.attempts) == (JobState.LEASED, worker, 1)


@pytest.mark.parametrize("phase", ["building", "starting", "running"])
def test_a_heartbeat_resumes_it_in_the_phase_it_is_in(phase: str) -> None:
    job = JobFactory.create()
    worker = WorkerFactory.create()
    lease = must_claim(worker).lease
    expire(lease)

    sync_holds(worker.pk, holds=[Hold(lease.pk, phase)])

    job.refresh_from_db()
    assert (job.state, job.worker) == (phase, worker)


def test_a_report_of_the_next_step_resumes_it_too() -> None:
    job = JobFactory.create()
    worker = WorkerFactory.create()
    lease = must_claim(worker).lease
    expire(lease)

    record(worker.pk, session=1, job_id=job.pk, lease_id=lease.pk, reports=[Report(1, "building")])

    job.refresh_from_db()
    assert (job.state, job.worker) == (JobState.BUILDING, worker)


def test_a_running_job_does_not_expire() -> None:
    job = JobFactory.create()
    worker = WorkerFactory.create()
    lease = must_claim(worker).lease
    record(worker.pk, session=1, job_id=job.pk, lease_id=lease.pk, reports=[Report(1, "running")])

    expire(lease)

    job.refresh_from_db()
    assert job.state == JobState.RUNNING


def test_the_third_expiry_leaves_one_more_period_to_resume_and_then_fails_with_the_last_reason() -> None:
    job = JobFactory.create()
    for n in range(3):
        expire(must_claim(WorkerFactory.create(), f"k{n}").lease)
    job.refresh_from_db()
    assert (job.state, job.attempts) == (JobState.QUEUED, 3)

    Job.objects.update(state_since=ago(1_000))
    rescue.sweep()

    job.refresh_from_db()
    assert (job.state, job.reason_code) == (JobState.FAILED, "too_many_attempts")
    assert "did not renew its lease" in job.reason
    assert not Lease.objects.filter(released_at=None).exists()


def test_a_spent_job_is_not_claimed_again_but_its_worker_may_still_return() -> None:
    job = JobFactory.create()
    for n in range(3):
        worker = WorkerFactory.create()
        lease = must_claim(worker, f"k{n}").lease
        expire(lease)

    from tests.jobs.conftest import claim

    assert claim(WorkerFactory.create(), "k4") is None
    sync_holds(worker.pk, holds=[Hold(lease.pk, "building")])
    job.refresh_from_db()
    assert job.state == JobState.BUILDING


def test_after_our_own_outage_every_worker_gets_a_full_period() -> None:
    JobFactory.create()
    lease = must_claim(WorkerFactory.create()).lease
    Uptime.objects.update(up_since=ago(5))  # the control plane came back five seconds ago

    expire(lease)

    assert Job.objects.get().state == JobState.LEASED


def test_while_no_web_process_is_up_nobody_is_at_fault() -> None:
    job = JobFactory.create()
    worker = WorkerFactory.create()
    lease = must_claim(worker).lease
    record(worker.pk, session=1, job_id=job.pk, lease_id=lease.pk, reports=[Report(1, "running")])
    worker.last_seen_at = ago(1_000)
    worker.save()
    Uptime.objects.update(alive_at=ago(900))

    rescue.sweep()

    job.refresh_from_db()
    assert job.state == JobState.RUNNING
