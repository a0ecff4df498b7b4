"""One move of one job: the guarded update, its event row, what follows from it, and the notice."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.apps import apps
from django.db import connection

from jobs import notices, patience, states
from jobs.errors import IllegalTransition, StaleLease, UnknownJob, UnknownLease
from jobs.lifecycle.rows import assignable, insertable
from jobs.models import Job, JobEvent, Lease, Reservation
from jobs.states import Event, JobState

# Moves back to the queue that do not count as an attempt: it was not the Space's fault.
UNCOUNTED = frozenset({Event.DECLINED, Event.LOST, Event.CUT_OFF, Event.STOPPED})
# Moves after which the lease is still the worker's: it may come back with the same attempt.
KEEPS_LEASE = frozenset({Event.CLAIM, Event.EXPIRED, Event.SILENT})


@dataclass(frozen=True)
class Cause:
    """Why a job moved, and who says so."""

    reason_code: str = ""
    reason: str = ""
    lease: Lease | None = None
    worker_name: str = ""
    seq: int | None = None
    actor: str = ""
    facts: dict[str, Any] | None = None  # for the line of history: what the sentence does not say


def lock_job(job_id: uuid.UUID) -> Job:
    """The job's row, locked. Raises UnknownJob."""
    try:
        return Job.objects.select_for_update(no_key=True, of=("self",)).get(pk=job_id)
    except Job.DoesNotExist:
        raise UnknownJob from None


def own_lease(job: Job, worker_id: uuid.UUID, lease_id: uuid.UUID) -> Lease:
    """This worker's unreleased lease of a locked job.

    Raises StaleLease where it is over or another's, UnknownLease where we have no row of it.
    """
    lease = unreleased_lease(job)
    if lease is None or lease.pk != lease_id or lease.worker_id != worker_id:
        raise StaleLease if Lease.objects.filter(pk=lease_id).exists() else UnknownLease
    return lease


def unreleased_lease(job: Job) -> Lease | None:
    """The lease that may still run this job. The job's row must be locked."""
    return Lease.objects.select_for_update(no_key=True).filter(job=job, released_at=None).first()


def move(job: Job, event: Event, cause: Cause, *, now: datetime, **changes: Any) -> JobState:
    """Move a locked job by `event` and write all that follows; raise IllegalTransition and write nothing if it is none.

    `changes` are further columns of the same update. A final state, or a return to the queue that is not a mere
    expiry, releases the lease. A final state unblocks the job that waited for this one. A job that is being stopped
    keeps the stop's reason, however its worker says that it ended; the line of history has the worker's.
    """
    before = JobState(job.state)
    after = states.move(before, event, ever_ran=job.ever_ran)
    changes["state"] = after
    if before is not JobState.STOPPING:
        changes |= {"reason_code": cause.reason_code, "reason": cause.reason}
    if after is not before:
        changes["state_since"] = now
    changes |= _times(job, before, after, now)
    if after is JobState.QUEUED:
        changes["worker"] = None
        if event in UNCOUNTED:
            changes["attempts"] = max(job.attempts - 1, 0)
    row = _event_row(job, event.value, cause, before=before, after=after)
    row.image_id = changes.get("image_id", job.image_id)
    worker_id = cause.lease.worker_id if cause.lease else None
    told = [notices.payload("job", job=job.pk, space=job.space_id, worker=worker_id)]
    if before is JobState.QUEUED and after is not before and patience.may_be_kept_for(job, now=now):
        told.append(notices.payload("work", line="moved"))  # what was kept for it may go to those behind it
    if not _write_move(job, before, changes, row, told):
        # Cannot happen under the row lock; guards against a caller that did not take it.
        raise IllegalTransition("The job moved meanwhile.")
    for name, value in changes.items():
        setattr(job, name, value)
    if cause.lease and _ends_lease(event, after):
        release(cause.lease, now=now, counted=event not in UNCOUNTED)
    if after in states.FINAL:
        _unblock_successors(job)
    if after is JobState.QUEUED and job.blocked_by_id is None:
        notices.publish("work", job=job.pk)
    return after


# The guarded update, its line of history and the notices: one statement, because every report of every worker is one.
_MOVE = """
    WITH moved AS (
        UPDATE jobs_job SET {assignments} WHERE id = %s AND state = %s RETURNING id
    ), told AS (
        INSERT INTO jobs_jobevent ({columns}) SELECT {values} FROM moved RETURNING id
    )
    SELECT pg_notify(%s, payload) FROM told, unnest(%s::text[]) AS payload
"""


def _write_move(job: Job, before: JobState, changes: dict[str, Any], row: JobEvent, told: list[str]) -> bool:
    """Write the move if the job is still in the state it was seen in; return whether it was. `told`: its notices."""
    changed, history = assignable(Job, changes), insertable(row)
    sql = _MOVE.format(
        assignments=", ".join(f"{column} = %s" for column in changed),
        columns=", ".join(history),
        values=", ".join(["%s"] * len(history)),
    )
    with connection.cursor() as cursor:
        cursor.execute(sql, [*changed.values(), job.pk, before.value, *history.values(), notices.CHANNEL, told])
        return bool(cursor.rowcount)


def _ends_lease(event: Event, after: JobState) -> bool:
    return after in states.FINAL or event is Event.CUT_OFF or (after is JobState.QUEUED and event not in KEEPS_LEASE)


def _times(job: Job, before: JobState, after: JobState, now: datetime) -> dict[str, Any]:
    """The timestamps that a move sets."""
    times: dict[str, Any] = {}
    if after is JobState.LEASED and before is JobState.QUEUED:
        times |= {"leased_at": now, "build_started_at": None, "build_ended_at": None}
    if after is JobState.BUILDING:
        times["build_started_at"] = now
    if before is JobState.BUILDING and after in (JobState.STARTING, JobState.RUNNING):
        times["build_ended_at"] = now
    if after is JobState.RUNNING and job.first_ran_at is None:
        times["first_ran_at"] = now
    if after in states.FINAL:
        times["finished_at"] = now
    if after is JobState.QUEUED and before in states.SERVING:
        times["queued_at"] = now  # it was handed back while it ran: it keeps its place, and begins to wait now
    return times


def write_event(
    job: Job,
    event: str,
    cause: Cause,
    *,
    before: JobState | None,
    after: JobState | None,
    ignored: bool = False,
    facts: dict[str, Any] | None = None,
) -> None:
    """Write one row of history. `facts`: figures and names that its sentence does not say to everybody."""
    _event_row(job, event, cause, before=before, after=after, ignored=ignored, facts=facts).save(force_insert=True)


def _event_row(
    job: Job,
    event: str,
    cause: Cause,
    *,
    before: JobState | None,
    after: JobState | None,
    ignored: bool = False,
    facts: dict[str, Any] | None = None,
) -> JobEvent:
    lease = cause.lease
    return JobEvent(
        job=job,
        event=event,
        from_state=before or "",
        to_state=after or "",
        ignored=ignored,
        reason_code=cause.reason_code,
        reason=cause.reason,
        revision=job.revision,
        image_id=job.image_id,
        worker_id=lease.worker_id if lease else None,
        worker_name=cause.worker_name or (worker_name(lease.worker_id) if lease else ""),
        lease=lease,
        seq=cause.seq,
        actor=cause.actor,
        facts=facts or cause.facts or {},
    )


def worker_name(worker_id: uuid.UUID) -> str:
    """A worker's name, kept beside each event so that history outlives the worker's row."""
    name = apps.get_model("workers", "Worker").objects.filter(pk=worker_id).values_list("name", flat=True).first()
    return str(name or "")


def release(lease: Lease, *, now: datetime, counted: bool = True) -> None:
    """End the right to run. What the worker still has of it keeps its reservations until the worker says it is gone."""
    if Lease.objects.filter(pk=lease.pk, released_at=None).update(released_at=now, counted=counted):
        lease.released_at = now


def clear(lease: Lease, *, now: datetime) -> None:
    """The worker has nothing of this lease any more: its reservations end."""
    if Lease.objects.filter(pk=lease.pk, cleared_at=None).update(cleared_at=now):
        Reservation.objects.filter(lease=lease, cleared_at=None).update(cleared_at=now)
        lease.cleared_at = now


def _unblock_successors(ended: Job) -> None:
    """Let the job that waited for `ended` go, or have it wait for another one of its replica that is not final."""
    for waiting in Job.objects.select_for_update(no_key=True).filter(blocked_by=ended).order_by("seq"):
        blocker = (
            Job.objects.active()
            .filter(space=waiting.space_id, replica=waiting.replica, seq__lt=waiting.seq)
            .exclude(pk=ended.pk)
            .order_by("-seq")
            .first()
        )
        Job.objects.filter(pk=waiting.pk).update(blocked_by=blocker)
        notices.publish("job", job=waiting.pk, space=waiting.space_id)
        if blocker is None:
            notices.publish("work", job=waiting.pk)
