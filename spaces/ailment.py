"""What ails a running app now: what its worker said last, or that nobody can reach its machine."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from jobs.ailing import illnesses
from jobs.models import Job
from jobs.states import JobState
from spaces import words

UNREACHABLE = "gateway_unreachable"
CLOSED = frozenset({"refused", "timeout"})  # what the control plane finds at a worker's gateway when it is not let in


@dataclass(frozen=True)
class Ailment:
    """A stable code, by which an open page sees a change, and a sentence in the reader's language."""

    code: str
    sentence: str


def of(job: Job) -> Ailment | None:
    """Return what ails an app that runs; None where nothing does, or where its state says more. At most one query."""
    return of_all([job]).get(job.pk)


def of_all(jobs: Iterable[Job]) -> dict[uuid.UUID, Ailment]:
    """Return what ails those of these jobs' apps that run and are ill. At most one query, however many jobs.

    What an app's worker said last comes before what its machine's gateway says: it is nearer to the app.
    """
    running = [job for job in jobs if job.state == JobState.RUNNING and job.mode != Job.Mode.BATCH]
    ill = illnesses(running)
    found = {}
    for job in running:
        if (told := ill.get(job.pk)) is not None:
            found[job.pk] = Ailment(told.reason_code, words.reason(told.reason_code, told.reason))
        elif job.worker is not None and job.worker.gateway_status in CLOSED:
            found[job.pk] = Ailment(UNREACHABLE, words.reason(UNREACHABLE, ""))
    return found
