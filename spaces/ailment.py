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
    """Return what ails a running job since it runs, in the reader's language; "" where nothing does. One query."""
    news = Q(event=EVENT) | (Q(to_state=JobState.RUNNING) & ~Q(from_state=JobState.RUNNING))
    newest = JobEvent.objects.filter(news, job=job, ignored=False).order_by("-id").first()
    return words.reason(newest.reason_code, newest.reason) if newest is not None and is_one(newest) else ""
