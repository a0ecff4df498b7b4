"""A worker takes the oldest job that fits it.

SQL holds no rule: which classes fit is decided in Python (`jobs.scheduling`), per class; the database only finds the
oldest unlocked job of the fitting classes. The cost does not grow with the length of the queue.
"""

from __future__ import annotations

import dataclasses
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from jobs import offers, scheduling
from jobs.errors import StaleLease, SupersededSession
from jobs.lifecycle.submission import lock_worker, spec_of
from jobs.lifecycle.transition import Cause, move, release
from jobs.models import Job, Lease, Requirement, Reservation
from jobs.scheduling import Placement, WorkerOffer
from jobs.states import Event
from jobs.tokens import newest_key_id

# Claims that count before a job is given up. A claim that was declined or lost does not count.
MAX_ATTEMPTS = 3
# How many heads of each class to look at. More only when all of them are locked by other claims at this moment.
HEADS = (4, 64, 204)

CLASSES_WITH_WORK = """
    SELECT r.* FROM jobs_requirement r
    WHERE EXISTS (
        SELECT 1 FROM jobs_job j WHERE j.requirement_id = r.id AND j.state = 'queued' AND j.blocked_by_id IS NULL
    )
"""
# The inner look-up walks one partial index per class and takes no lock; the outer locks one row and re-checks it.
OLDEST_UNLOCKED = """
    SELECT j.*, statement_timestamp() AS picked_at
    FROM unnest(%s::bigint[], %s::boolean[]) AS c (requirement_id, only_batch)
    CROSS JOIN LATERAL (
        SELECT id, seq FROM jobs_job
        WHERE requirement_id = c.requirement_id AND state = 'queued' AND blocked_by_id IS NULL
          AND attempts < %s AND (NOT c.only_batch OR mode = 'batch')
        ORDER BY seq LIMIT %s
    ) head
    JOIN jobs_job j ON j.id = head.id
    WHERE j.state = 'queued' AND j.blocked_by_id IS NULL AND j.attempts < %s
    ORDER BY j.seq
    LIMIT 1
    FOR NO KEY UPDATE OF j SKIP LOCKED
"""


@dataclass(frozen=True)
class Claim:
    """A job and the right to run it. `repeated`: the answer to a key that was answered before."""

    job: Job
    lease: Lease
    gpu_uuids: tuple[str, ...]
    repeated: bool = False


def claim_next(worker_id: uuid.UUID, *, session: int, free_gpu: int, free_cpu: int, key: str) -> Claim | None:
    """Lease the oldest fitting job to this worker, or None. The same `key` repeats the answer as long as it is true.

    Raises SupersededSession, and StaleLease where the key's lease has ended meanwhile.
    """
    with transaction.atomic():
        worker = lock_worker(worker_id)
        if worker is None or worker.session != session:
            raise SupersededSession
        earlier = Lease.objects.select_related("job").filter(worker=worker_id, idempotency_key=key).first()
        if earlier is not None:
            return _repeat(earlier)
        # A statement after the lock: it sees what the claim that we waited for has reserved.
        offer = _narrow(offers.offer_of(worker), free_gpu=free_gpu, free_cpu=free_cpu)
        found = _pick(offer)
        if found is None:
            return None
        job, placement, now = found
        lease = _lease(job, worker_id, session=session, key=key, now=now)
        _reserve(lease, placement)
        cause = Cause("claimed", f"{worker.name} took it.", lease, worker_name=worker.name)
        move(job, Event.CLAIM, cause, now=now, worker_id=worker_id, attempts=job.attempts + 1)
        return Claim(job, lease, tuple(gpu.uuid for gpu in placement.gpus))


def _repeat(lease: Lease) -> Claim:
    if lease.released_at is not None:
        raise StaleLease
    uuids = tuple(lease.reservations.order_by("gpu__index").values_list("gpu__uuid", flat=True))
    return Claim(lease.job, lease, uuids, repeated=True)


def _narrow(offer: WorkerOffer, *, free_gpu: int, free_cpu: int) -> WorkerOffer:
    """The worker may have less room than our books say; never more."""
    return dataclasses.replace(
        offer,
        free_gpu_slots=max(0, min(offer.free_gpu_slots, free_gpu)),
        free_cpu_slots=max(0, min(offer.free_cpu_slots, free_cpu)),
    )


def _pick(offer: WorkerOffer) -> tuple[Job, Placement, datetime] | None:
    """The oldest job that fits, locked; its place; and the database's time."""
    placements: dict[int, Placement] = {}
    only_batch: dict[int, bool] = {}
    for row in Requirement.objects.raw(CLASSES_WITH_WORK):
        spec = spec_of(row)
        for mode in (Job.Mode.SERVICE, Job.Mode.BATCH):
            placement = scheduling.fits(offer, spec, mode=mode)
            if isinstance(placement, Placement):
                placements[row.pk] = placement
                only_batch[row.pk] = mode == Job.Mode.BATCH
                break
    if not placements:
        return None
    for heads in HEADS:
        modes = [only_batch[pk] for pk in placements]
        locked = Job.objects.raw(OLDEST_UNLOCKED, [list(placements), modes, MAX_ATTEMPTS, heads, MAX_ATTEMPTS])
        for job in locked:
            picked_at: datetime = job.picked_at  # type: ignore[attr-defined]  # the query's own column
            return job, placements[job.requirement_id], picked_at
    return None


def _lease(job: Job, worker_id: uuid.UUID, *, session: int, key: str, now: datetime) -> Lease:
    """A new lease. An expired one that nobody released ends here, and with it the chance to resume it."""
    newest = job.leases.select_for_update(no_key=True).order_by("-attempt").first()
    if newest is not None and newest.released_at is None:
        release(newest, now=now)
    return Lease.objects.create(
        job=job,
        worker_id=worker_id,
        attempt=newest.attempt + 1 if newest else 1,
        session=session,
        idempotency_key=key,
        key_id=newest_key_id(),
        acquired_at=now,
        expires_at=now + timedelta(seconds=settings.OPENFACE_GPU_WORKER_LEASE_SECONDS),
    )


def _reserve(lease: Lease, placement: Placement) -> None:
    Reservation.objects.bulk_create(
        [
            Reservation(lease=lease, gpu_id=share.gpu.gpu_id, mib=share.mib, exclusive=share.exclusive)
            for share in placement.shares
        ]
    )
