"""A queued job gets other needs, because an operator placed its Space elsewhere. Its place in the line stays."""

from __future__ import annotations

from django.db import transaction

from jobs import notices
from jobs.audit import Actor, actor_name
from jobs.clock import database_now
from jobs.lifecycle.transition import Cause, release, unreleased_lease, write_event
from jobs.models import Job
from jobs.patience import MAX_ATTEMPTS
from jobs.requirements import requirement_row
from jobs.scheduling import RequirementSpec
from jobs.states import JobState


def waits_in_line(job: Job) -> bool:
    """Whether a job is queued with attempts left, so that no worker has it and any may still take it."""
    return job.state == JobState.QUEUED and job.attempts < MAX_ATTEMPTS


def reclass_queued(space_id: int, requirement: RequirementSpec, *, actor: Actor, reason: str) -> list[Job]:
    """Give the Space's queued jobs these needs and return those that had others. The caller holds the Space's lock.

    A job whose lease expired ends that lease here, as the next claim would: its worker must not resume it against the
    operator's will. One whose last attempt expired is no longer in the line, and stays as it is. So does whatever a
    worker has: a container cannot be moved.
    """
    with transaction.atomic():
        # A job that a claim takes at this moment is waited for, and then no longer among them.
        queued = Job.objects.select_for_update(no_key=True, of=("self",)).filter(
            space=space_id, state=JobState.QUEUED, attempts__lt=MAX_ATTEMPTS
        )
        jobs = list(queued.order_by("seq"))
        row = requirement_row(requirement) if jobs else None
        moved = [job for job in jobs if row is not None and job.requirement_id != row.pk]
        for job in moved:
            Job.objects.filter(pk=job.pk, state=JobState.QUEUED).update(requirement=row)
            job.requirement = row  # type: ignore[assignment]  # there is a row where there is a job
            cause = Cause("placement_changed", reason, actor=actor_name(actor))
            write_event(job, "placed", cause, before=JobState.QUEUED, after=JobState.QUEUED)
            lease = unreleased_lease(job)
            if lease is not None:
                release(lease, now=database_now())
                notices.publish("stop", worker=lease.worker_id, job=job.pk)
            notices.publish("job", job=job.pk, space=job.space_id)
            if job.blocked_by_id is None:
                notices.publish("work", job=job.pk)
        if moved:
            notices.publish("work", line="placed")  # GPUs may have been kept for its former needs
    return moved
