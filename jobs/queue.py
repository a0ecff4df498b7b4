"""The whole queue as operators look at it: the line with its reasons, what stands beside it, and who runs what."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jobs import line
from jobs.clock import database_now
from jobs.line import COUNTED_PLACES
from jobs.models import Job, Requirement
from jobs.patience import MAX_ATTEMPTS
from jobs.states import ACTIVE, JobState
from jobs.waiting import Waiting, why_all_wait

BESIDE_SHOWN = 100  # jobs that wait for something else than a worker
TAKEN_SHOWN = 500


@dataclass(frozen=True)
class Entry:
    """One queued job and why it has not started."""

    job: Job
    waiting: Waiting


@dataclass(frozen=True)
class Queue:
    """All of it at one moment. `length` counts the whole line, of which only the head is listed."""

    now: datetime
    length: int
    line: list[Entry]
    beside: list[Entry]  # queued, and not in the line: the run before it still stops, or its last attempt may return

    @property
    def is_cut(self) -> bool:
        """Whether the line goes on behind what is listed."""
        return self.length > len(self.line)


def read(*, limit: int = COUNTED_PLACES) -> Queue:
    """Read the queue, at most `limit` jobs of the line. A fixed number of queries, however many jobs and workers."""
    first = line.jobs_in_order(line.head(limit))
    queued = Job.objects.filter(state=JobState.QUEUED)
    blocked = queued.filter(blocked_by__isnull=False) | queued.filter(attempts__gte=MAX_ATTEMPTS)
    aside = list(blocked.select_related("requirement__worker", "requested_by").order_by("seq")[:BESIDE_SHOWN])
    why = why_all_wait([*first, *aside])
    return Queue(
        now=database_now(),
        length=line.in_line().count(),
        line=[Entry(job, why[job.pk]) for job in first if job.pk in why],
        beside=[Entry(job, why[job.pk]) for job in aside if job.pk in why],
    )


def taken() -> list[Job]:
    """Return the jobs that workers have, by worker and then by age, at most TAKEN_SHOWN. One query."""
    jobs = Job.objects.filter(state__in=ACTIVE - {JobState.QUEUED}).select_related("requirement__worker", "worker")
    return list(jobs.order_by("worker__name", "seq")[:TAKEN_SHOWN])


def needs(requirement: Requirement) -> str:
    """What a class of jobs asks for, with the worker that an operator named for it."""
    named = f" on {requirement.worker.name} only" if requirement.worker is not None else ""
    return f"{requirement}{named}"


def as_json(entry: Entry, *, now: datetime) -> dict[str, Any]:
    """One queued job for programs; operators only, since its reasons name everybody."""
    job, waiting = entry.job, entry.waiting
    return {
        **job_as_json(job, now=now),
        "place": waiting.place,
        "code": waiting.code,
        "reason": waiting.sentence,
        "workers": [dataclasses.asdict(said) for reason in waiting.workers for said in reason.sentences()],
    }


def job_as_json(job: Job, *, now: datetime) -> dict[str, Any]:
    """One job for programs."""
    need = job.requirement
    return {
        "job": str(job.pk),
        "space": f"{job.owner}/{job.repo}",
        "revision": job.revision,
        "state": job.state,
        "kind": job.kind,
        "mode": job.mode,
        "requirement": {
            "kind": need.kind,
            "gpu_count": need.gpu_count,
            "vram_mib": need.vram_mib,
            "exclusive": need.exclusive,
            "features": need.features,
            "worker": need.worker.name if need.worker is not None else None,
        },
        "worker": job.worker.name if job.worker is not None else None,
        "attempts": job.attempts,
        "queued_at": job.queued_at.isoformat(),
        "state_since": job.state_since.isoformat(),
        "seconds_in_state": round(max(0.0, (now - job.state_since).total_seconds()), 1),
        "seconds_since_queued": round(max(0.0, (now - job.queued_at).total_seconds()), 1),
    }
