"""Which job a worker gets: the oldest unlocked one of the classes that fit it.

SQL holds no rule. The heads of the line say which classes have work; Python decides per class whether it fits
(`jobs.scheduling`) and how far down the line it may be taken (`jobs.patience`); the database then finds and locks the
oldest job. Two statements, whose cost does not grow with the length of the line.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from jobs import patience, scheduling
from jobs.models import Job, Requirement
from jobs.patience import MAX_ATTEMPTS, Head
from jobs.scheduling import Placement, Refusal, WorkerOffer

# How many jobs at the head of the fitting classes to look at. More only when all of them are locked by other claims at
# this moment, or wait for this very worker. The last exceeds what all connections of a database can have locked, so
# that whoever is told "nothing" could have had nothing.
HEADS = (4, 64, 1024)
_END_OF_LINE = 2**63 - 1

# The inner look-up walks one partial index per class and takes no lock. Where only batch jobs may be taken it is the
# index that has those alone, for any number of services may stand before them; of its two halves one is never run. The
# outer fetches a few rows by their keys, locks the oldest and re-checks it. Nothing but the key must offer itself to
# the planner there: by a join, by the bare `seq` or by bare conditions it would, with some statistics, walk the whole
# line once more (hence CASE and the zero).
# The lock leaves room for the key-share locks of event inserts: behind those, SKIP LOCKED would skip a fitting job.
# The class is checked again with the row: an operator may have placed the job anew since it was found.
# A job that went back to the line under a lease of this very worker is not taken anew by it: such a claim was late on
# its way, and the worker has the job still, or says within two heartbeats that it has not.
OLDEST_UNLOCKED = """
    SELECT j.*, statement_timestamp() AS picked_at
    FROM jobs_job j
    WHERE j.id = ANY(ARRAY(
        SELECT head.id
        FROM unnest(%s::bigint[], %s::boolean[], %s::bigint[]) AS c (requirement_id, only_batch, before)
        CROSS JOIN LATERAL (
            (
                SELECT id, seq FROM jobs_job
                WHERE requirement_id = c.requirement_id AND state = 'queued' AND blocked_by_id IS NULL
                  AND seq < c.before AND attempts < %s AND NOT c.only_batch
                ORDER BY seq LIMIT %s
            ) UNION ALL (
                SELECT id, seq FROM jobs_job
                WHERE requirement_id = c.requirement_id AND state = 'queued' AND blocked_by_id IS NULL
                  AND seq < c.before AND attempts < %s AND c.only_batch AND mode = 'batch'
                ORDER BY seq LIMIT %s
            )
        ) head
        ORDER BY head.seq LIMIT %s
    ))
    AND CASE WHEN j.state = 'queued' AND j.blocked_by_id IS NULL AND j.attempts < %s AND NOT EXISTS (
        SELECT FROM jobs_lease l WHERE l.job_id = j.id AND l.released_at IS NULL AND l.worker_id = %s
    ) AND EXISTS (
        SELECT FROM unnest(%s::bigint[], %s::boolean[], %s::bigint[]) AS c (requirement_id, only_batch, before)
        WHERE c.requirement_id = j.requirement_id AND j.seq < c.before AND (NOT c.only_batch OR j.mode = 'batch')
    ) THEN true ELSE false END
    ORDER BY j.seq + 0
    LIMIT 1
    FOR NO KEY UPDATE OF j SKIP LOCKED
"""


@dataclass(frozen=True)
class Picked:
    """A locked job with its requirement, its place on the worker, and the database's time."""

    job: Job
    placement: Placement
    at: datetime


@dataclass(frozen=True)
class _Takeable:
    """A class of which the worker may take jobs: where they would go, and up to which place in the line."""

    requirement: Requirement
    placement: Placement
    only_batch: bool
    before: int = _END_OF_LINE


def pick(offer: WorkerOffer) -> Picked | None:
    """Lock and return the oldest job that the worker may take; None where there is none that nobody else holds.

    The worker's row must be locked, and the offer read after that.
    """
    takeable = _takeable(offer, patience.heads())
    if not takeable:
        return None
    classes = [list(takeable), [c.only_batch for c in takeable.values()], [c.before for c in takeable.values()]]
    for limit in HEADS:
        halves = [MAX_ATTEMPTS, limit] * 2
        found_by = [*classes, *halves, limit, MAX_ATTEMPTS, offer.worker_id, *classes]
        for job in Job.objects.raw(OLDEST_UNLOCKED, found_by):
            at: datetime = job.picked_at  # type: ignore[attr-defined]  # the query's own column
            found = takeable[job.requirement_id]
            job.requirement = found.requirement
            return Picked(job, found.placement, at)
    return None


def _takeable(offer: WorkerOffer, line: Iterable[Head]) -> dict[int, _Takeable]:
    """The classes that fit, by the id of their row."""
    line = list(line)
    protected = patience.protected_among(offer, line)
    behind = patience.left_for_others(offer, protected) if protected else offer
    found: dict[int, _Takeable] = {}
    for head in line:
        kept_back = protected is not None and head.spec.kind == "gpu"
        taken = _fitting(behind if kept_back else offer, head)
        if taken is None and kept_back and protected is not None and head.seq < protected.seq:
            taken = _fitting(offer, head, before=protected.seq)
        if taken is not None:
            found[head.requirement.pk] = taken
    return found


def _fitting(offer: WorkerOffer, head: Head, *, before: int = _END_OF_LINE) -> _Takeable | None:
    answer = scheduling.fits(offer, head.spec, mode=Job.Mode.SERVICE)
    if isinstance(answer, Placement):
        return _Takeable(head.requirement, answer, only_batch=False, before=before)
    if isinstance(answer, Refusal) and answer.code == "gateway_unreachable":  # which a batch job does not need
        answer = scheduling.fits(offer, head.spec, mode=Job.Mode.BATCH)
        if isinstance(answer, Placement):
            return _Takeable(head.requirement, answer, only_batch=True, before=before)
    return None
