"""A stop is a wish on the row: whatever a worker reports later moves the job towards stopped."""

from __future__ import annotations

import uuid
from datetime import datetime

from django.apps import apps
from django.db import transaction

from jobs import notices
from jobs.audit import Actor, actor_name
from jobs.clock import now_and_up_since
from jobs.lifecycle.transition import Cause, lock_job, move, unreleased_lease
from jobs.models import Job, Lease
from jobs.states import Event, JobState


def request_stop(job_id: uuid.UUID, *, actor: Actor = None, code: str = "stopped_by_person", reason: str = "") -> Job:
    """Wish a job stopped. The second wish returns the first's result and changes no time. Raises UnknownJob.

    Final at once when nothing can be running, or when the worker is silent: it is told when it returns.
    """
    with transaction.atomic():
        job = lock_job(job_id)
        now, up_since = now_and_up_since()
        want_stopped(job, now=now, up_since=up_since, actor=actor, code=code, reason=reason)
    return job


def stop_space(space_id: int, *, actor: Actor = None, code: str = "stopped_by_person", reason: str = "") -> list[Job]:
    """Wish every job of a Space stopped: what serves, and what is about to. Returns those that were not final."""
    with transaction.atomic():
        jobs = list(Job.objects.active().select_for_update(no_key=True).filter(space=space_id).order_by("seq"))
        now, up_since = now_and_up_since()
        # The newest first: a waiting successor is cancelled before the end of its predecessor could let it go.
        for job in reversed(jobs):
            want_stopped(job, now=now, up_since=up_since, actor=actor, code=code, reason=reason)
    return jobs


def want_stopped(job: Job, *, now: datetime, up_since: datetime, actor: Actor, code: str, reason: str) -> None:
    """Write the wish on a locked job and make the move that follows. Nothing where it is wished or final."""
    if job.is_final or job.stop_requested_at is not None:
        return
    lease = unreleased_lease(job)
    cause = Cause(reason_code=code, reason=reason or "Stop was requested.", lease=lease, actor=actor_name(actor))
    event = Event.STOP
    if job.state != JobState.QUEUED and (told := _nobody_will_answer(lease, now=now, up_since=up_since)):
        event = Event.STOP_UNREACHABLE
        cause = Cause(code, f"{cause.reason} {told}", lease, actor=cause.actor)
    move(job, event, cause, now=now, stop_requested_at=now, stop_reason=cause.reason[:255])
    if lease:
        notices.publish("stop", worker=lease.worker_id, job=job.pk)


def _nobody_will_answer(lease: Lease | None, *, now: datetime, up_since: datetime) -> str:
    """Why no worker can be expected to report the stop, as a sentence; "" where one can."""
    if lease is None:  # unavailable, and its worker was revoked: waiting for a report would be waiting for ever
        return "No worker has it any more."
    # The worker's row is read without a lock: we came from the job.
    worker = apps.get_model("workers", "Worker").objects.get(pk=lease.worker_id)
    if not worker.is_online(now=now, up_since=up_since):
        return "The worker is not reachable; it is told to stop when it returns."
    if worker.refused_since is not None:  # what it should do stands in the answers to its reports
        return "The worker's reports are refused; it is told to stop when they are taken again."
    return ""
