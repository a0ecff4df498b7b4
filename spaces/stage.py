"""What the App tab says while a Space is not running: the headline, the five steps, what they took last time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from django.utils.translation import gettext as _

from jobs.delivery import Delivery
from jobs.models import Job
from jobs.states import JobState
from jobs.switch import SWITCHED_OFF
from spaces import words
from spaces.build_steps import Step
from spaces.durations import duration
from spaces.models import Space

Standing = Literal["done", "current", "todo"]

PATH = (JobState.QUEUED, JobState.LEASED, JobState.BUILDING, JobState.STARTING, JobState.RUNNING)


@dataclass(frozen=True)
class LastTime:
    """How long the steps of this Space's last run that came so far took, in seconds."""

    build: float | None = None
    start: float | None = None
    run: float | None = None


@dataclass(frozen=True)
class PathStep:
    """One of the five steps from the queue to running."""

    state: str
    name: str
    note: str
    standing: Standing
    progress: float | None = None  # percent, where the last time gives a measure

    @property
    def look(self) -> str:
        """The class that colours it."""
        return {"done": "running", "current": self.state, "todo": "todo"}[self.standing]

    @property
    def glyph(self) -> str:
        return "done" if self.standing == "done" else self.state


@dataclass(frozen=True)
class Figure:
    """A figure beside the headline; a ticking one goes on in the browser."""

    name: str
    seconds: float
    ticking: bool = False


def last_time(job: Job) -> LastTime:
    """Return what the newest earlier runs of the same Space took. One query."""
    earlier = list(
        Job.objects.filter(space=job.space_id, seq__lt=job.seq, leased_at__isnull=False)
        .order_by("-seq")
        .only("build_started_at", "build_ended_at", "first_ran_at", "finished_at")[:10]
    )
    return LastTime(
        build=_first(_between(run.build_started_at, run.build_ended_at) for run in earlier),
        start=_first(_between(run.build_ended_at, run.first_ran_at) for run in earlier),
        run=_first(_between(run.first_ran_at, run.finished_at) for run in earlier),
    )


def path(job: Job, *, now: datetime, last: LastTime, bringing: Delivery | None = None) -> list[PathStep]:
    """Return the five steps, each with what it took, takes, or took last time."""
    state = JobState(job.state)
    at = PATH.index(state) if state in PATH else 0
    spent = _spent(job)
    steps = []
    for number, step in enumerate(PATH):
        standing: Standing = "done" if number < at else "current" if number == at else "todo"
        note, progress = "", None
        if standing == "done":
            seconds = spent.get(step)
            note = duration(seconds) if seconds is not None else ""
            if step is JobState.LEASED and job.worker is not None:
                note = job.worker.name
        elif standing == "current":
            note, progress = _current(step, (now - job.state_since).total_seconds(), last)
            if bringing is not None:
                note, progress = _("delivering its results"), round(100 * bringing.share, 1)
        else:
            note = _todo(step, last)
        steps.append(PathStep(step.value, words.state_name(step), note, standing, progress))
    return steps


def figures(job: Job, *, now: datetime, last: LastTime, bringing: Delivery | None = None) -> list[Figure]:
    """Return the figures beside the headline. A forecast is shown only where the last time gives one."""
    state = JobState(job.state)
    passed = (now - job.state_since).total_seconds()
    if bringing is not None and state is not JobState.UNAVAILABLE:
        return [Figure(_("Delivering for"), (now - bringing.since).total_seconds(), ticking=True)]
    if state is JobState.QUEUED:
        shown = [Figure(_("Waiting for"), (now - job.queued_at).total_seconds(), ticking=True)]
        if last.build is not None and last.start is not None:
            shown.append(Figure(_("Then ready in about"), last.build + last.start))
        return shown
    if state is JobState.BUILDING:
        shown = [Figure(_("Building for"), passed, ticking=True)]
        if last.build is not None:
            shown.append(Figure(_("Last build took"), last.build))
            if last.start is not None and passed < last.build:
                shown.append(Figure(_("Ready in about"), last.build - passed + last.start))
        return shown
    if state is JobState.STARTING:
        shown = [Figure(_("Starting for"), passed, ticking=True)]
        if last.start is not None:
            shown.append(Figure(_("Last time it took"), last.start))
        return shown
    if state is JobState.RUNNING:
        shown = [Figure(_("Computing for"), passed, ticking=True)]
        if last.run is not None:
            shown.append(Figure(_("Last run took"), last.run))
        return shown
    if state is JobState.STOPPING:
        return [Figure(_("Stopping for"), passed, ticking=True)]
    if state is JobState.UNAVAILABLE:
        return [Figure(_("Unavailable for"), passed, ticking=True)]
    return []


def headline(job: Job, *, place: str, step: Step | None, bringing: Delivery | None = None) -> str:
    """Return the one sentence of the stage. `place` is the place in the line in words, empty when not known.

    `bringing`: the job has computed, or was stopped, and its results are on their way.
    """
    state = JobState(job.state)
    if bringing is not None and state is not JobState.UNAVAILABLE:
        return _("Delivering its results")
    if state is JobState.QUEUED:
        if job.blocked_by_id is not None:
            return _("The run before this one is stopping")
        return _("%(place)s in line") % {"place": place} if place else _("Waiting in line")
    if state is JobState.LEASED:
        return _("%(worker)s has taken it") % {"worker": _worker(job)}
    if state is JobState.BUILDING:
        if step is not None:
            return _("Building, step %(number)d of %(total)d") % {"number": step.number, "total": step.total}
        return _("Building")
    if state is JobState.STARTING:
        return _("Starting")
    if state is JobState.RUNNING and job.mode == Job.Mode.BATCH:
        return _("Computing")
    if state is JobState.STOPPING:
        return _("Stopping")
    if state is JobState.UNAVAILABLE:
        if job.reason_code == SWITCHED_OFF:
            return _("GPU workers are switched off")
        return _("%(worker)s is not heard from") % {"worker": _worker(job)}
    return words.state_name(state, completes=words.completes(job))


def failure_headline(job: Job, *, step: Step | None) -> str:
    """Return what went wrong, in the reader's language where the code is known."""
    said = words.reason(job.reason_code, job.reason)
    if step is not None and step.standing == "failed":
        return _("The build failed at step %(number)d of %(total)d") % {"number": step.number, "total": step.total}
    return said or _("It ended with an error")


def stage_key(space: Space, job: Job | None) -> str:
    """Return what the stage is about. While it stays the same, a live page need not draw the stage anew."""
    if job is None:
        return f"{space.pk}"
    # The same job may be unavailable for one reason after another: its worker is silent, or may not serve.
    why = f":{job.reason_code}" if job.state == JobState.UNAVAILABLE else ""
    return f"{space.pk}:{job.id}:{job.state}{why}"


def _worker(job: Job) -> str:
    return job.worker.name if job.worker is not None else _("A worker")


def _between(start: datetime | None, end: datetime | None) -> float | None:
    return (end - start).total_seconds() if start is not None and end is not None and end >= start else None


def _first(values: Iterable[float | None]) -> float | None:
    return next((value for value in values if value is not None), None)


def _spent(job: Job) -> dict[JobState, float | None]:
    return {
        JobState.QUEUED: _between(job.queued_at, job.leased_at),
        JobState.BUILDING: _between(job.build_started_at, job.build_ended_at),
        JobState.STARTING: _between(job.build_ended_at, job.first_ran_at),
    }


def _current(step: JobState, passed: float, last: LastTime) -> tuple[str, float | None]:
    usual = {JobState.BUILDING: last.build, JobState.STARTING: last.start}.get(step)
    if usual:
        note = _("%(passed)s of about %(usual)s") % {"passed": duration(passed), "usual": duration(usual)}
        return note, min(100.0, round(100 * passed / usual, 1))
    return _("for %(time)s") % {"time": duration(passed)}, None


def _todo(step: JobState, last: LastTime) -> str:
    usual = {JobState.BUILDING: last.build, JobState.STARTING: last.start, JobState.RUNNING: last.run}.get(step)
    return _("last time %(time)s") % {"time": duration(usual)} if usual else ""
