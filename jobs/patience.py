"""Starvation protection: a job that needs much must not wait for ever while smaller ones pass it.

Whoever needs two GPUs at once finds one free now and then, and always sees it go to a job that needs one. So a job that
has waited for OPENFACE_PATIENCE_SECONDS is *protected* on every worker that could run it if nothing of ours were there:
such a worker gives to jobs behind it in the line no GPU that the protected job could use, and not its last free slot.
CPU jobs, jobs before it in the line, and GPUs that are of no use to it go on as ever.

Where the jobs that are in its way are services, they may never end, and keeping would idle the fleet for nothing. So
the protection comes and goes: GPUs are kept for OPENFACE_KEEP_SECONDS, then for three times as long the job is passed
as any other, then they are kept again. Its place in the line it never loses.

Each worker decides this for itself, from what it offers and the heads of the line. No rule that keeps the GPUs of one
chosen worker only is safe: which of its jobs ends first is known to nobody, and a worker that is not kept may be the
one whose jobs would have ended. The protection ends by itself with the next claim that takes the job.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings

from jobs import scheduling
from jobs.models import Job, Requirement
from jobs.requirements import spec_of
from jobs.scheduling import Placement, Refusal, RequirementSpec, WorkerOffer

# Claims that count before a job is given up. A claim that was declined or lost does not count.
MAX_ATTEMPTS = 3
# Out of so many spans of OPENFACE_KEEP_SECONDS, GPUs are kept for a job in the first, and it is passed in the others.
SPANS = 4

# One look-up in the index job_queue_by_class per class, however long the line is. (An EXISTS or a GROUP BY leaves the
# planner the choice to read the whole line.)
_HEADS = """
    SELECT r.*, head.id AS job_id, head.seq, head.mode, head.owner, head.repo, head.queued_at,
           EXTRACT(EPOCH FROM statement_timestamp() - head.queued_at)::float AS waited_seconds
    FROM jobs_requirement r
    CROSS JOIN LATERAL (
        SELECT id, seq, mode, owner, repo, queued_at FROM jobs_job
        WHERE requirement_id = r.id AND state = 'queued' AND blocked_by_id IS NULL AND attempts < %s
        ORDER BY seq LIMIT 1
    ) head
"""


@dataclass(frozen=True)
class Head:
    """The oldest job of one class that a claim may take."""

    requirement: Requirement
    spec: RequirementSpec
    job_id: uuid.UUID
    seq: int
    mode: str
    owner: str
    repo: str
    queued_at: datetime
    waited_seconds: float  # by the database's clock


@dataclass(frozen=True)
class Protected:
    """The job for which a worker keeps its GPUs."""

    job_id: uuid.UUID
    seq: int
    owner: str
    repo: str
    waiting_since: datetime
    spec: RequirementSpec
    mode: str


def heads() -> list[Head]:
    """Return the oldest waiting job of each class that has any. One query."""
    rows = Requirement.objects.raw(_HEADS, [MAX_ATTEMPTS])
    names = [field.name for field in dataclasses.fields(Head) if field.name not in ("requirement", "spec")]
    return [Head(requirement=row, spec=spec_of(row), **{name: getattr(row, name) for name in names}) for row in rows]


def protected_jobs(offers: Iterable[WorkerOffer]) -> dict[uuid.UUID, Protected]:
    """Return for whom each of these workers keeps its GPUs; workers that keep none are left out. One query."""
    line = heads()
    found = ((offer.worker_id, protected_among(offer, line)) for offer in offers)
    return {worker_id: protected for worker_id, protected in found if protected is not None}


def protected_job(offer: WorkerOffer) -> Protected | None:
    """Return the job for which this worker keeps its GPUs, if it does. One query."""
    return protected_among(offer, heads())


def protected_among(offer: WorkerOffer, line: Sequence[Head]) -> Protected | None:
    """Return the oldest GPU job whose turn it is, that the worker could run if empty, and cannot now."""
    impatient = [head for head in line if head.spec.kind == "gpu" and _is_kept(head.waited_seconds)]
    for head in sorted(impatient, key=lambda head: head.seq):
        fits_now = isinstance(scheduling.fits(offer, head.spec, mode=head.mode), Placement)
        if not fits_now and scheduling.could_if_empty(offer, head.spec, mode=head.mode):
            return Protected(head.job_id, head.seq, head.owner, head.repo, head.queued_at, head.spec, head.mode)
    return None


def _is_kept(waited_seconds: float) -> bool:
    """Whether GPUs are kept, at this moment, for a job that has waited so long."""
    beyond: float = waited_seconds - settings.OPENFACE_PATIENCE_SECONDS
    keep: float = settings.OPENFACE_KEEP_SECONDS
    return keep > 0 and beyond >= 0 and beyond % (SPANS * keep) < keep


def may_be_kept_for(job: Job, *, now: datetime) -> bool:
    """Whether GPUs may be kept for this queued job, so that others may go as soon as it leaves the line.

    Asks for the requirement of a job that has waited so long, and of no other.
    """
    if settings.OPENFACE_KEEP_SECONDS <= 0:
        return False
    waited = (now - job.queued_at).total_seconds()
    return waited >= settings.OPENFACE_PATIENCE_SECONDS and job.requirement.kind == Requirement.Kind.GPU


def left_for_others(offer: WorkerOffer, protected: Protected) -> WorkerOffer:
    """Return what the worker offers to GPU jobs behind the protected one."""
    one_gpu = dataclasses.replace(protected.spec, gpu_count=1)
    useless = tuple(
        gpu
        for gpu in offer.gpus
        if not scheduling.could_if_empty(dataclasses.replace(offer, gpus=(gpu,)), one_gpu, mode=protected.mode)
    )
    return dataclasses.replace(offer, gpus=useless, free_gpu_slots=max(0, offer.free_gpu_slots - 1))


def decide(
    offer: WorkerOffer, spec: RequirementSpec, *, mode: str, seq: int, protected: Protected | None
) -> Placement | Refusal:
    """Say what a claim of this worker would say to a job at this place of the line: `scheduling.fits`, or kept."""
    answer = scheduling.fits(offer, spec, mode=mode)
    if protected is None or spec.kind != "gpu" or seq <= protected.seq or isinstance(answer, Refusal):
        return answer
    behind = scheduling.fits(left_for_others(offer, protected), spec, mode=mode)
    return behind if isinstance(behind, Placement) else kept(offer, protected)


def kept(offer: WorkerOffer, protected: Protected) -> Refusal:
    """Return the refusal that names for whom the GPUs are kept, and since when that job waits."""
    whom = f"{protected.owner}/{protected.repo}"
    since = protected.waiting_since
    sentence = f"{offer.name} keeps its GPUs for {whom}, which has waited since {since:%Y-%m-%d %H:%M} UTC."
    return Refusal("kept_for_older", sentence, facts={"space": whom, "since": since.isoformat()})
