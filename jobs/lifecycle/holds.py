"""What a worker has, against what it should have: renewals, adoption, clearing, and the one desired list.

Level-triggered: every register and heartbeat says all that the worker has, so a lost message costs one beat.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from django.conf import settings
from django.db import connection, transaction
from django.db.models import F
from django.db.models.functions import Now

from jobs import logs as log_rows
from jobs import notices
from jobs.clock import database_now
from jobs.errors import SupersededSession
from jobs.lifecycle.submission import lock_worker
from jobs.lifecycle.transition import Cause, clear, lock_job, move, own_lease, unreleased_lease
from jobs.models import Job, Lease
from jobs.sessions import is_current
from jobs.states import COMING, Event, JobState
from jobs.switch import SWITCHED_OFF, is_withheld
from jobs.tokens import UnknownLeaseKey, newest_key_id, runtime_token

Want = Literal["keep", "stop", "remove", "hold"]

# A heartbeat may have been written before the claim that it does not list; two in a row were not.
UNLISTED_BEATS = 2
# What a heartbeat without news needs; the rest of a row is read where something moves.
_READ_EACH_BEAT = (
    "worker_id",
    "key_id",
    "acquired_at",
    "expires_at",
    "released_at",
    "accepted_through",
    "unlisted_beats",
    "job__state",
    "job__reason_code",
    "job__stop_requested_at",
    "job__stop_reason",
)
# Written out, because it runs with every heartbeat: building it costs more than running it.
_RENEW = "UPDATE jobs_lease SET expires_at = %s, unlisted_beats = 0 WHERE id = ANY(%s) AND released_at IS NULL"
RESUMES_TO = {"building": Event.BUILDING, "starting": Event.STARTING, "running": Event.RUNNING}


@dataclass(frozen=True)
class Hold:
    """A lease that the worker has in some phase, or a labelled container it found."""

    lease_id: uuid.UUID
    state: str
    image_id: str = ""
    container: str = ""
    healthy: bool | None = None


@dataclass(frozen=True)
class Instruction:
    """What the worker should do with a lease."""

    lease_id: uuid.UUID
    want: Want
    reason: str = ""
    grace_s: float | None = None
    expires_in_s: float | None = None
    next_seq: int | None = None
    log_offsets: dict[str, int] | None = None
    runtime_token: str | None = None


def sync_holds(worker_id: uuid.UUID, *, holds: Sequence[Hold] | None, registering: bool = False) -> list[Instruction]:
    """Bring our rows and the worker's inventory together; return what it should do with each lease.

    Within the caller's transaction, which holds the worker's row lock. `holds` None (the engine did not answer)
    renews everything and changes nothing else.
    """
    leases = Lease.objects.filter(worker=worker_id, cleared_at=None).annotate(read_at=Now()).order_by("acquired_at")
    rows = list(leases.select_related("job").only(*_READ_EACH_BEAT))
    if not rows:
        return _strays(worker_id, [hold.lease_id for hold in holds or ()])
    now = rows[0].read_at
    if holds is None:
        _renew([lease for lease in rows if lease.released_at is None], now=now)
        return [_instruction(lease, now=now) for lease in rows]
    # A worker that registers may have adopted what runs, and must know where each log goes on.
    offsets = log_rows.next_offsets_of(lease.pk for lease in rows) if registering else {}
    listed = {hold.lease_id: hold for hold in holds}
    _renew([lease for lease in rows if lease.released_at is None and lease.pk in listed], now=now)
    for lease in rows:
        hold = listed.get(lease.pk)
        if hold is None:
            _unlisted(lease, now=now, registering=registering)
        elif lease.released_at is None:
            _listed(lease, hold, now=now)
    known = [
        _instruction(lease, now=now, log_offsets=offsets.get(lease.pk))
        for lease in rows
        if lease.pk in listed or lease.released_at is None
    ]
    # Leases we have no row for (a restored database, another installation) are kept, not served, and shown.
    # One of ours that was cleared and turns up again is known to be over.
    return known + _strays(worker_id, [pk for pk in listed if pk not in {lease.pk for lease in rows}])


def renew_lease(worker_id: uuid.UUID, *, session: int, job_id: uuid.UUID, lease_id: uuid.UUID) -> float:
    """Renew one lease; return the seconds it is good for. Raises StaleLease, SupersededSession,
    UnknownJob, UnknownLease.

    An expired lease that nobody else took goes on as the same attempt.
    """
    with transaction.atomic():
        worker = lock_worker(worker_id)
        if worker is None or not is_current(worker.session, session):
            raise SupersededSession
        job = lock_job(job_id)
        lease = own_lease(job, worker_id, lease_id)
        now = database_now()
        _renew([lease], now=now)
        if job.state == JobState.QUEUED:
            _resume(job, lease, Event.RESUMED, now=now)
    return float(settings.OPENFACE_GPU_WORKER_LEASE_SECONDS)


def _renew(leases: Sequence[Lease], *, now: datetime) -> None:
    """One narrow update, for all attempts of the worker together."""
    if not leases:
        return
    expires_at = now + timedelta(seconds=settings.OPENFACE_GPU_WORKER_LEASE_SECONDS)
    with connection.cursor() as cursor:
        cursor.execute(_RENEW, [expires_at, [lease.pk for lease in leases]])
    for lease in leases:
        lease.expires_at = expires_at


def _listed(lease: Lease, hold: Hold, *, now: datetime) -> None:
    """The worker has it and may: follow where our row fell behind."""
    follows = {JobState.QUEUED, JobState.UNAVAILABLE}
    if lease.job.state not in follows:
        return
    job = lock_job(lease.job_id)
    lease.job = job
    if unreleased_lease(job) != lease:  # claimed by another, or ended, since we looked
        lease.refresh_from_db()
        lease.job = job
        return
    if is_withheld(lease):
        return  # the keeper lets go of what waits; what runs is unavailable until remote workers are switched on
    if job.state == JobState.QUEUED:
        _resume(job, lease, RESUMES_TO.get(hold.state, Event.RESUMED), now=now)
    elif job.state == JobState.UNAVAILABLE and hold.state == "running":
        move(job, Event.RUNNING, _back(job, lease), now=now)


def _back(job: Job, lease: Lease) -> Cause:
    if job.reason_code == SWITCHED_OFF:
        return Cause("gpu_workers_enabled", "Remote GPU workers are switched on again; the app never stopped.", lease)
    return Cause("worker_back", "The worker is back, and the app never stopped.", lease)


def _resume(job: Job, lease: Lease, event: Event, *, now: datetime) -> None:
    cause = Cause("lease_resumed", "The worker came back before anybody else took it.", lease)
    move(job, event, cause, now=now, worker_id=lease.worker_id)


def _unlisted(lease: Lease, *, now: datetime, registering: bool) -> None:
    """The worker has nothing of it."""
    if lease.released_at is not None:
        clear(lease, now=now)
        return
    if not registering and not _unlisted_for_long(lease, now=now):
        return
    job = lock_job(lease.job_id)
    lease.job = job
    current = unreleased_lease(job)
    if current is None or current.pk != lease.pk:
        lease.released_at = lease.released_at or now
        clear(lease, now=now)
        return
    coming = JobState(job.state) in COMING
    code = "claim_answer_lost" if coming else "container_lost"
    sentence = "The worker does not have it; it goes back to the line." if coming else "Its container is gone."
    move(job, Event.LOST, Cause(code, sentence, lease), now=now)
    clear(lease, now=now)


def _unlisted_for_long(lease: Lease, *, now: datetime) -> bool:
    """Whether this is the second heartbeat in a row without it, and its claim is not just being answered."""
    Lease.objects.filter(pk=lease.pk).update(unlisted_beats=F("unlisted_beats") + 1)
    lease.unlisted_beats += 1
    settled = now - lease.acquired_at > timedelta(seconds=2 * settings.OPENFACE_GPU_WORKER_HEARTBEAT_SECONDS)
    return settled and lease.unlisted_beats >= UNLISTED_BEATS


def _instruction(lease: Lease, *, now: datetime, log_offsets: dict[str, int] | None = None) -> Instruction:
    if lease.released_at is not None:
        return Instruction(lease.pk, "remove", reason="The right to run it has ended.")
    job = lease.job
    want: Want = "stop" if job.stop_requested_at is not None else "keep"
    try:
        token = runtime_token(lease)
    except UnknownLeaseKey:
        token = _rekeyed(lease)
    return Instruction(
        lease.pk,
        want,
        reason=job.stop_reason if want == "stop" else "",
        grace_s=settings.OPENFACE_STOP_GRACE_SECONDS if want == "stop" else None,
        expires_in_s=max((lease.expires_at - now).total_seconds(), 0.0),
        next_seq=lease.accepted_through + 1,
        log_offsets=log_offsets,
        runtime_token=token,
    )


def _rekeyed(lease: Lease) -> str:
    """Give a lease whose key is no longer listed a token of the newest key; this answer brings it to the worker."""
    lease.key_id = newest_key_id()
    Lease.objects.filter(pk=lease.pk, released_at=None).update(key_id=lease.key_id)
    notices.publish("job", job=lease.job_id, space=lease.job.space_id, worker=lease.worker_id)  # routes hold tokens
    return runtime_token(lease)


def _strays(worker_id: uuid.UUID, lease_ids: Sequence[uuid.UUID]) -> list[Instruction]:
    if not lease_ids:
        return []
    ended = set(Lease.objects.filter(pk__in=lease_ids, worker=worker_id).values_list("pk", flat=True))
    return [
        Instruction(pk, "remove", reason="The right to run it has ended.")
        if pk in ended
        else Instruction(pk, "hold", reason="This control plane does not know the lease.")
        for pk in lease_ids
    ]
