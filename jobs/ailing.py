"""What ails a running app, as the newest line of its history about its health says."""

from __future__ import annotations

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
    began = Q(to_state=JobState.RUNNING) & ~Q(from_state__in=[JobState.RUNNING, JobState.UNAVAILABLE])
    news = Q(event=EVENT) | began
    newest = JobEvent.objects.filter(news, job=job, ignored=False).order_by("-id").first()
    return newest if newest is not None and is_illness(newest) else None
