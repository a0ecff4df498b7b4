"""Jobs as people are shown them: "running" is a worker's word, and a silent worker's word counts for nothing."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from jobs.clock import now_and_up_since
from jobs.models import Job
from jobs.states import JobState


def as_shown(job: Job, *, now: datetime, up_since: datetime) -> Job:
    """Return the job with the state to show: a running one of a silent worker is unavailable.

    The keeper makes the same move within seconds; this holds while the keeper itself is down. The returned object is
    for reading only: it no longer says what the row says.
    """
    worker = job.worker
    if job.state == JobState.RUNNING and worker is not None and not worker.is_online(now=now, up_since=up_since):
        job.state = JobState.UNAVAILABLE
        job.state_since = worker.last_seen_at or job.state_since
        job.reason_code, job.reason = "worker_silent", ""
    return job


def all_as_shown(jobs: Iterable[Job]) -> list[Job]:
    """Return jobs as they are shown, judged at one moment. One query; their workers must have been read with them."""
    jobs = list(jobs)
    if not any(job.state == JobState.RUNNING for job in jobs):
        return jobs
    now, up_since = now_and_up_since()
    return [as_shown(job, now=now, up_since=up_since) for job in jobs]
