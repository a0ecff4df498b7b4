"""What ails a running app now, as its worker said last: in its history, and under its frame."""

from __future__ import annotations

from django.db.models import Q

from jobs.models import Job, JobEvent
from jobs.states import JobState
from spaces import words

EVENT = "app_health"
WELL = "app_well"


def is_one(event: JobEvent) -> bool:
    """Whether the event says that something ails the app."""
    return event.event == EVENT and event.reason_code != WELL


def of(job: Job) -> str:
    """Return what ails a running job since it runs, in the reader's language; "" where nothing does. One query.

    A worker that was away comes back with the same container, and tells only what is new of it.
    """
    began = Q(to_state=JobState.RUNNING) & ~Q(from_state__in=[JobState.RUNNING, JobState.UNAVAILABLE])
    news = Q(event=EVENT) | began
    newest = JobEvent.objects.filter(news, job=job, ignored=False).order_by("-id").first()
    return words.reason(newest.reason_code, newest.reason) if newest is not None and is_one(newest) else ""
