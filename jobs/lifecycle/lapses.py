"""What time and operators do to leases: expiry, silence, cutting a worker off, switching remote workers off.

Each call is safe to repeat.
"""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from jobs import notices
from jobs.clock import database_now
from jobs.errors import IllegalTransition
from jobs.lifecycle.submission import lock_worker
from jobs.lifecycle.transition import Cause, clear, lock_job, move, unreleased_lease
from jobs.models import Lease
from jobs.patience import MAX_ATTEMPTS
from jobs.states import Event, JobState
from jobs.switch import SWITCHED_OFF

EXPIRABLE = frozenset({JobState.LEASED, JobState.BUILDING, JobState.STARTING})


def expire_lease(lease_id: uuid.UUID, *, now: datetime, up_since: datetime) -> bool:
    """Queue the job of a lease that ran out. The lease is not released: until another claim, its worker may resume it.

    Time is counted from our own start at the earliest. Returns whether it moved.
    """
    with transaction.atomic():
        found = Lease.objects.filter(pk=lease_id, released_at=None).values_list("job_id", flat=True).first()
        if found is None:
            return False
        job = lock_job(found)
        lease = unreleased_lease(job)
        if lease is None or lease.pk != lease_id or JobState(job.state) not in EXPIRABLE:
            return False
        period = timedelta(seconds=settings.OPENFACE_GPU_WORKER_LEASE_SECONDS)
        if now < max(lease.expires_at, up_since + period):
            return False
        cause = Cause("lease_expired", "The worker did not renew its lease in time.", lease)
        move(job, Event.EXPIRED, cause, now=now)
    return True


def give_up(job_id: uuid.UUID, *, now: datetime) -> bool:
    """Fail a queued job whose last attempt expired and was not resumed within one more lease period."""
    with transaction.atomic():
        job = lock_job(job_id)
        period = timedelta(seconds=settings.OPENFACE_GPU_WORKER_LEASE_SECONDS)
        if job.state != JobState.QUEUED or job.attempts < MAX_ATTEMPTS or now < job.state_since + period:
            return False
        sentence = f"Given up after {job.attempts} attempts. The last one: {job.reason}"
        move(job, Event.GAVE_UP, Cause("too_many_attempts", sentence, unreleased_lease(job)), now=now)
    return True


def mark_silent(
    job_id: uuid.UUID, *, worker_name: str, since: datetime | None, now: datetime, refused: bool = False
) -> bool:
    """Show a job of a silent worker for what it is: unavailable if it ran, ended if it was being stopped.

    `refused`: it speaks, and what it says has not been taken `since`.
    """
    with transaction.atomic():
        job = lock_job(job_id)
        if job.state == JobState.UNAVAILABLE and job.reason_code != SWITCHED_OFF:
            return False
        heard = f" since {since:%Y-%m-%d %H:%M:%S} UTC" if since else ""
        sentence = f"Worker {worker_name} has not been heard from{heard}."
        if refused:
            sentence = f"Reports of worker {worker_name} are refused{heard}; it stops it when they are taken again."
        try:
            move(job, Event.SILENT, Cause("worker_silent", sentence, unreleased_lease(job)), now=now)
        except IllegalTransition:
            return False
    return True


def withhold(job_id: uuid.UUID, *, now: datetime) -> bool:
    """Act on a job of a remote worker while remote workers are switched off. Returns whether anything changed.

    What was coming goes back to the line uncounted, and its lease ends. What runs goes on under its lease, unseen: it
    is unavailable until they are switched on again. A stop that is under way goes on.
    """
    with transaction.atomic():
        job = lock_job(job_id)
        lease = unreleased_lease(job)
        if lease is None or lease.worker.local:
            return False
        cause = Cause(SWITCHED_OFF, "Remote GPU workers are switched off on this server.", lease)
        match JobState(job.state):
            case JobState.RUNNING:
                move(job, Event.WITHHELD, cause, now=now)
            case JobState.UNAVAILABLE if job.reason_code != SWITCHED_OFF:
                move(job, Event.WITHHELD, cause, now=now)
            case JobState.QUEUED | JobState.LEASED | JobState.BUILDING | JobState.STARTING:
                move(job, Event.CUT_OFF, cause, now=now)
                notices.publish("stop", worker=lease.worker_id, job=job.pk)
            case _:
                return False
    return True


def let_go(job_id: uuid.UUID, *, worker_id: uuid.UUID, reason_code: str, reason: str) -> bool:
    """End a worker's claim on a job that went back to the line: it may not resume it any more, others may take it.

    Returns False where the job is not in the line, or not this worker's to resume.
    """
    with transaction.atomic():
        job = lock_job(job_id)
        lease = unreleased_lease(job)
        if job.state != JobState.QUEUED or lease is None or lease.worker_id != worker_id:
            return False
        move(job, Event.CUT_OFF, Cause(reason_code, reason, lease), now=database_now())
    return True


def cut_off_worker(worker_id: uuid.UUID, *, reason_code: str, reason: str, cleared: bool) -> int:
    """Take every lease from a worker: what was coming goes back to the line uncounted, what ran is unavailable.

    `cleared`: it will never answer again (revoked), so its reservations end too. Returns how many leases ended.
    The caller's transaction may hold the worker's lock already; it is taken here otherwise.
    """
    with transaction.atomic():
        lock_worker(worker_id)
        now = database_now()
        leases = list(Lease.objects.filter(worker=worker_id, cleared_at=None).order_by("job__seq"))
        ended = 0
        for lease in leases:
            job = lock_job(lease.job_id)
            current = unreleased_lease(job)
            if current is not None and current.pk == lease.pk:
                move(job, Event.CUT_OFF, Cause(reason_code, reason, current), now=now)
                ended += 1
            if cleared:
                clear(lease, now=now)
    return ended
