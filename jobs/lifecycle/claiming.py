"""A worker takes the oldest job that fits it: the lease, its reservations and the move, in one transaction."""

from __future__ import annotations

import dataclasses
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from jobs import offers
from jobs.clock import database_now
from jobs.errors import StaleLease, SupersededSession
from jobs.lifecycle.picking import pick
from jobs.lifecycle.submission import lock_worker
from jobs.lifecycle.transition import Cause, move
from jobs.models import Job, Lease
from jobs.scheduling import Placement, WorkerOffer
from jobs.sessions import is_current
from jobs.states import Event
from jobs.tokens import newest_key_id

# One statement, whatever came before: a key that was used already makes no second lease; an expired lease of the job
# that nobody released ends here, and with it the chance to resume it; the new one is numbered; what it needs of each
# GPU is reserved. The insert reads what the update returned, so that it comes after it (at most one unreleased lease).
_TAKE = """
    WITH used AS (
        SELECT 1 FROM jobs_lease WHERE worker_id = %(worker)s AND idempotency_key = %(key)s
    ), ended AS (
        UPDATE jobs_lease SET released_at = %(now)s
        WHERE job_id = %(job)s AND released_at IS NULL AND NOT EXISTS (SELECT FROM used)
        RETURNING id
    ), taken AS (
        INSERT INTO jobs_lease (
            id, job_id, worker_id, attempt, counted, session, idempotency_key, key_id, acquired_at, expires_at,
            accepted_through, unlisted_beats, log_incomplete
        )
        SELECT %(lease)s, %(job)s, %(worker)s,
               1 + COALESCE((SELECT max(attempt) FROM jobs_lease WHERE job_id = %(job)s), 0),
               true, %(session)s, %(key)s, %(key_id)s, %(now)s, %(expires)s, 0, 0, false
        WHERE NOT EXISTS (SELECT FROM used) AND (SELECT count(*) FROM ended) >= 0
        RETURNING *
    ), reserved AS (
        INSERT INTO jobs_reservation (lease_id, gpu_id, mib, exclusive)
        SELECT taken.id, share.*
        FROM taken, unnest(%(gpus)s::bigint[], %(mibs)s::int[], %(exclusives)s::boolean[]) AS share
    )
    SELECT * FROM taken
"""


@dataclass(frozen=True)
class Claim:
    """A job, read with its requirement, and the right to run it. `repeated`: this key was answered before."""

    job: Job
    lease: Lease
    gpu_uuids: tuple[str, ...]
    expires_in_s: float
    repeated: bool = False


def claim_next(worker_id: uuid.UUID, *, session: int, free_gpu: int, free_cpu: int, key: str) -> Claim | None:
    """Lease the oldest fitting job to this worker, or None. The same `key` repeats the answer as long as it is true.

    Raises SupersededSession, and StaleLease where the key's lease has ended meanwhile.
    """
    with transaction.atomic():
        worker = lock_worker(worker_id)
        if worker is None or not is_current(worker.session, session):
            raise SupersededSession
        # A statement after the lock: it sees what the claim that we waited for has reserved.
        offer = offers.offer_of(worker)
        return claim_for(offer, session=session, free_gpu=free_gpu, free_cpu=free_cpu, key=key)


def claim_for(offer: WorkerOffer, *, session: int, free_gpu: int, free_cpu: int, key: str) -> Claim | None:
    """The same, within the transaction of a caller who locked the worker's row, checked its session, and read the
    offer after that.
    """
    picked = pick(_narrow(offer, free_gpu=free_gpu, free_cpu=free_cpu))
    if picked is None:
        return _earlier(offer.worker_id, key)
    job, now = picked.job, picked.at
    lease = _take(job, picked.placement, offer.worker_id, session=session, key=key, now=now)
    if lease is None:
        return _earlier(offer.worker_id, key)
    cause = Cause("claimed", f"{offer.name} took it.", lease, worker_name=offer.name)
    move(job, Event.CLAIM, cause, now=now, worker_id=offer.worker_id, attempts=job.attempts + 1)
    uuids = tuple(gpu.uuid for gpu in picked.placement.gpus)
    return Claim(job, lease, uuids, (lease.expires_at - now).total_seconds())


def _earlier(worker_id: uuid.UUID, key: str) -> Claim | None:
    """What this key was answered before, if it was. Asked last, because a repeated key is rare and a claim is not."""
    lease = Lease.objects.select_related("job__requirement").filter(worker=worker_id, idempotency_key=key).first()
    if lease is None:
        return None
    if lease.released_at is not None:
        raise StaleLease
    uuids = tuple(lease.reservations.order_by("gpu__index").values_list("gpu__uuid", flat=True))
    expires_in_s = max(0.0, (lease.expires_at - database_now()).total_seconds())
    return Claim(lease.job, lease, uuids, expires_in_s, repeated=True)


def _narrow(offer: WorkerOffer, *, free_gpu: int, free_cpu: int) -> WorkerOffer:
    """The worker may have less room than our books say; never more."""
    return dataclasses.replace(
        offer,
        free_gpu_slots=max(0, min(offer.free_gpu_slots, free_gpu)),
        free_cpu_slots=max(0, min(offer.free_cpu_slots, free_cpu)),
    )


def _take(
    job: Job, placement: Placement, worker_id: uuid.UUID, *, session: int, key: str, now: datetime
) -> Lease | None:
    """A new lease with its reservations; None where the key has one already. The worker's and the job's rows are
    locked, so that nobody else numbers leases of this job or uses keys of this worker now.
    """
    facts = {
        "lease": uuid.uuid4(),
        "job": job.pk,
        "worker": worker_id,
        "session": session,
        "key": key,
        "key_id": newest_key_id(),
        "now": now,
        "expires": now + timedelta(seconds=settings.OPENFACE_GPU_WORKER_LEASE_SECONDS),
        "gpus": [share.gpu.gpu_id for share in placement.shares],
        "mibs": [share.mib for share in placement.shares],
        "exclusives": [share.exclusive for share in placement.shares],
    }
    for lease in Lease.objects.raw(_TAKE, facts):
        lease.job = job
        return lease
    return None
