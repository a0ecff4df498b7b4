"""What ails a running app now, as its worker said last: under its frame, live."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.ailing import illness
from jobs.models import Job
from jobs.states import JobState
from spaces import words


@dataclass(frozen=True)
class Ailment:
    """A stable code, by which an open page sees a change, and a sentence in the reader's language."""

    code: str
    sentence: str


def of(job: Job) -> Ailment | None:
    """Return what ails an app that runs; None where nothing does, or where its state says more. At most one query."""
    if job.state != JobState.RUNNING or job.mode == Job.Mode.BATCH:
        return None
    told = illness(job)
    return Ailment(told.reason_code, words.reason(told.reason_code, told.reason)) if told is not None else None
