"""Why is it waiting? One sentence per worker and GPU, from the same function that decides claims."""

from __future__ import annotations

from dataclasses import dataclass

from jobs import offers, scheduling
from jobs.lifecycle.claiming import MAX_ATTEMPTS
from jobs.lifecycle.submission import spec_of
from jobs.models import Job
from jobs.scheduling import GpuRefusal, Placement, Refusal, WorkerOffer
from jobs.states import JobState

COUNTED_PLACES = 100


@dataclass(frozen=True)
class WorkerReason:
    """One worker's answer. `refusal` None: it would take the job with its next claim."""

    offer: WorkerOffer
    refusal: Refusal | None

    @property
    def name(self) -> str:
        return self.offer.name

    @property
    def code(self) -> str:
        return self.refusal.code if self.refusal else "would_fit"

    @property
    def sentence(self) -> str:
        return self.refusal.sentence if self.refusal else f"{self.name} can take it now."

    @property
    def gpus(self) -> tuple[GpuRefusal, ...]:
        return self.refusal.per_gpu if self.refusal else ()


@dataclass(frozen=True)
class Waiting:
    """Why a queued job has not started. `place` counts from 1; `place_capped`: at least that many are before it."""

    code: str
    sentence: str
    place: int | None = None
    place_capped: bool = False
    workers: tuple[WorkerReason, ...] = ()


def why_waiting(job: Job, *, workers: list[WorkerOffer] | None = None) -> Waiting | None:
    """The reasons of a queued job, nearest worker first; None for a job that does not wait.

    Pass `workers` to judge many jobs by one look at the fleet.
    """
    if job.state != JobState.QUEUED:
        return None
    if job.blocked_by_id is not None:
        return Waiting("predecessor_stopping", "It starts as soon as the run before it has stopped.")
    place, capped = _place(job)
    if job.attempts >= MAX_ATTEMPTS:
        return Waiting("last_chance", "Its last attempt expired; that worker may yet return with it.", place, capped)
    spec = spec_of(job.requirement)
    reasons = []
    for offer in offers.offers_for(None) if workers is None else workers:
        answer = scheduling.fits(offer, spec, mode=job.mode)
        reasons.append(WorkerReason(offer, None if isinstance(answer, Placement) else answer))
    reasons.sort(key=_distance)
    return _summed_up(reasons, place, capped)


def _summed_up(reasons: list[WorkerReason], place: int, capped: bool) -> Waiting:
    workers = tuple(reasons)
    if not workers:
        return Waiting("no_worker", "No worker has been enrolled yet.", place, capped)
    nearest = workers[0]
    if nearest.refusal is None:
        return Waiting("about_to_start", f"{nearest.name} can take it now.", place, capped, workers)
    if all(reason.refusal and reason.refusal.never for reason in workers):
        sentence = "No worker can ever take it as it is. " + nearest.sentence
        return Waiting("no_compatible_worker", sentence, place, capped, workers)
    return Waiting(nearest.code, nearest.sentence, place, capped, workers)


def _distance(reason: WorkerReason) -> tuple[int, str]:
    """How far a worker is from taking it: now, when something frees, when it is back, never."""
    if reason.refusal is None:
        return 0, reason.name
    if reason.refusal.never:
        return 3, reason.name
    return (2 if reason.code == "worker_offline" else 1), reason.name


def _place(job: Job) -> tuple[int, bool]:
    ahead = Job.objects.claimable().filter(seq__lt=job.seq)[:COUNTED_PLACES].count()
    return ahead + 1, ahead >= COUNTED_PLACES
