"""Why is it waiting? One sentence per worker and GPU, from the same function that decides claims."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from jobs import line, offers, patience, scheduling
from jobs.line import COUNTED_PLACES
from jobs.models import Job
from jobs.patience import MAX_ATTEMPTS, Protected
from jobs.requirements import spec_of
from jobs.scheduling import GpuRefusal, Placement, Refusal, RequirementSpec, WorkerOffer
from jobs.states import JobState

BEHIND_EVERYBODY = 2**63 - 1  # a seq for a job that is not there yet

# How far a worker is from taking a job: now, after an older job, when something frees, when somebody acts, when it is
# back, never as things are, and never because it is not the one that was named. What is not listed waits for something
# to be freed.
_NOW, _BEHIND, _BUSY, _CLOSED, _AWAY, _NEVER, _NOT_NAMED = range(7)
_RANKS = {
    "kept_for_older": _BEHIND,
    "worker_disabled": _CLOSED,
    "worker_draining": _CLOSED,
    "worker_paused": _CLOSED,
    "gpu_jobs_paused": _CLOSED,
    "reports_refused": _CLOSED,
    "gateway_unreachable": _CLOSED,
    "gpu_workers_disabled": _CLOSED,
    "worker_offline": _AWAY,
    "other_worker_named": _NOT_NAMED,
}


@dataclass(frozen=True)
class Sentence:
    """Why one worker, or one GPU of it, does not take a job. For logs, commands and operators."""

    worker: str
    gpu: str
    code: str
    reason: str
    never: bool


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

    @property
    def never(self) -> bool:
        return self.refusal is not None and self.refusal.never

    def sentences(self) -> list[Sentence]:
        """One for the worker, or one for each of its GPUs where they differ. In English, and they name everybody."""
        if not self.gpus:
            return [Sentence(self.name, "", self.code, self.sentence, self.never)]
        said = {refusal.gpu.uuid: (refusal.code, refusal.sentence) for refusal in self.gpus}
        alone = "free, but not enough GPUs are free there at once"
        return [
            Sentence(
                self.name,
                f"GPU {gpu.index}",
                *said.get(gpu.uuid, ("gpu_free_alone", f"{self.name} / {gpu.model}: {alone}")),
                never=self.never,
            )
            for gpu in self.offer.gpus
        ]


@dataclass(frozen=True)
class Waiting:
    """Why a queued job has not started. `place` counts from 1; `place_capped`: at least that many are before it."""

    code: str
    sentence: str
    place: int | None = None
    place_capped: bool = False
    workers: tuple[WorkerReason, ...] = ()


@dataclass(frozen=True)
class Look:
    """The fleet and the head of the line at one moment, for any number of jobs. Judging asks the database nothing."""

    offers: tuple[WorkerOffer, ...]
    places: Mapping[uuid.UUID, int]
    kept: Mapping[uuid.UUID, Protected]  # by worker: the older job for which it keeps its GPUs
    _judged: dict[tuple[RequirementSpec, str], tuple[WorkerReason, ...]] = field(default_factory=dict)

    def reasons(self, spec: RequirementSpec, *, mode: str, seq: int = BEHIND_EVERYBODY) -> tuple[WorkerReason, ...]:
        """What each worker says to a job of this class at this place in the line, nearest first."""
        found = self._judged.get((spec, mode))
        if found is None:  # once per class
            answers = ((offer, scheduling.fits(offer, spec, mode=mode)) for offer in self.offers)
            judged = (WorkerReason(offer, None if isinstance(to, Placement) else to) for offer, to in answers)
            found = self._judged[spec, mode] = tuple(sorted(judged, key=_distance))
        if spec.kind != "gpu" or not self.kept:
            return found
        said = (self._behind_an_older(reason, spec, mode=mode, seq=seq) for reason in found)
        return tuple(sorted(said, key=_distance))

    def _behind_an_older(self, reason: WorkerReason, spec: RequirementSpec, *, mode: str, seq: int) -> WorkerReason:
        older = self.kept.get(reason.offer.worker_id)
        if reason.refusal is not None or older is None:
            return reason
        answer = patience.decide(reason.offer, spec, mode=mode, seq=seq, protected=older)
        return WorkerReason(reason.offer, None if isinstance(answer, Placement) else answer)

    def why(self, job: Job) -> Waiting | None:
        """The reasons of a queued job, nearest worker first; None for a job that does not wait."""
        if job.state != JobState.QUEUED:
            return None
        if job.blocked_by_id is not None:
            return Waiting("predecessor_stopping", "It starts as soon as the run before it has stopped.")
        if job.attempts >= MAX_ATTEMPTS:
            return Waiting("last_chance", "Its last attempt expired; that worker may yet return with it.")
        place = self.places.get(job.pk)
        shown, capped = (COUNTED_PLACES + 1, True) if place is None else (place, False)
        spec = spec_of(job.requirement)
        return summed_up(self.reasons(spec, mode=job.mode, seq=job.seq), spec, place=shown, capped=capped)


def look(*, named: Iterable[uuid.UUID | None] = ()) -> Look:
    """Look at the fleet and the line. A few queries, however many workers and jobs.

    `named`: workers that an operator named for one of the jobs. They are looked at even when they were revoked, since
    that is the answer then.
    """
    seen = list(offers.offers_for(None))
    missing = {worker_id for worker_id in named if worker_id is not None} - {offer.worker_id for offer in seen}
    if missing:
        seen += offers.offers_for(sorted(missing))
    places = {job_id: place for place, job_id in enumerate(line.head(), start=1)}
    return Look(tuple(seen), places, patience.protected_jobs(seen))


def why_waiting(job: Job) -> Waiting | None:
    """The reasons of one queued job; None for a job that does not wait."""
    return why_all_wait([job]).get(job.pk)


def why_all_wait(jobs: Iterable[Job]) -> dict[uuid.UUID, Waiting]:
    """The reasons of those of these jobs that wait, by one look at the fleet. Read their requirements with them."""
    queued = [job for job in jobs if job.state == JobState.QUEUED]
    if not queued:
        return {}
    seen = look(named=[job.requirement.worker_id for job in queued])
    return {job.pk: why for job in queued if (why := seen.why(job)) is not None}


def summed_up(
    workers: tuple[WorkerReason, ...], spec: RequirementSpec, *, place: int | None = None, capped: bool = False
) -> Waiting:
    """All of it in one code and one sentence: what the nearest worker says, or that none will ever do."""
    if not workers:
        return Waiting("no_worker", "No worker has been enrolled yet.", place, capped)
    nearest = workers[0]
    if nearest.refusal is None:
        return Waiting("about_to_start", f"{nearest.name} can take it now.", place, capped, workers)
    if spec.worker_id is not None:
        code, sentence = _of_the_named_one(nearest)
        return Waiting(code, sentence, place, capped, workers)
    if nearest.never:
        sentence = "No worker can ever take it as it is. " + nearest.sentence
        return Waiting("no_compatible_worker", sentence, place, capped, workers)
    return Waiting(nearest.code, nearest.sentence, place, capped, workers)


def _of_the_named_one(named: WorkerReason) -> tuple[str, str]:
    if named.code == "worker_revoked":
        return "named_worker_revoked", f"An operator placed it on {named.name}, which was revoked."
    if named.never:
        return "named_worker_unfit", f"An operator placed it on {named.name}, which can never take it: {named.sentence}"
    return "named_worker_waits", f"An operator placed it on {named.name}. {named.sentence}"


def _distance(reason: WorkerReason) -> tuple[int, str]:
    if reason.refusal is None:
        return _NOW, reason.name
    if reason.never and reason.code != "other_worker_named":
        return _NEVER, reason.name
    return _RANKS.get(reason.code, _BUSY), reason.name
