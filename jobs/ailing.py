"""What ails a running app, as the newest line of its history about its health says."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from django.db.models import Q

from jobs.models import Job, JobEvent
from jobs.states import JobState

EVENT = "app_health"
WELL = "app_well"


def is_illness(event: JobEvent) -> bool:
    """Whether the event says that something ails the app."""
    return event.event == EVENT and event.reason_code != WELL


def illness(job: Job) -> JobEvent | None:
    """Return what ails a job since it runs; None where nothing does. One query.

    A worker that was away comes back with the same container, so what ailed it before ails it still; a new container
    begins well.
    """
    return illnesses([job]).get(job.pk)


def illnesses(jobs: Iterable[Job]) -> dict[uuid.UUID, JobEvent]:
    """Return what ails those of these jobs that are ill. One query, however many jobs; none without any."""
    ids = [job.pk for job in jobs]
    if not ids:
        return {}
    began = Q(to_state=JobState.RUNNING) & ~Q(from_state__in=[JobState.RUNNING, JobState.UNAVAILABLE])
    told = JobEvent.objects.filter(Q(event=EVENT) | began, job__in=ids, ignored=False)
    newest = told.order_by("job_id", "-id").distinct("job_id")
    return {event.job_id: event for event in newest if is_illness(event)}
