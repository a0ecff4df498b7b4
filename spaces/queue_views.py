"""The queue for operators: the line with its reasons, what stands beside it, and who runs what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from jobs import queue
from jobs.models import Job
from jobs.queue import Entry, Queue
from spaces import why, words
from spaces.durations import rough
from spaces.placement import may_place
from spaces.shown import all_as_shown
from spaces.why import Reader, Row

OPERATOR = Reader(spaces=(), operator=True)


@dataclass(frozen=True)
class Line:
    """One queued job as a row."""

    job: Job
    place: int | None
    needs: str
    seconds: float
    short: str  # why, in a few words
    klass: str  # the class of needs, under which the reasons stand in full
    asked_by: str


@dataclass(frozen=True)
class ClassOfNeeds:
    """What jobs of one class of needs hear from each worker and GPU."""

    name: str
    needs: str
    short: str
    jobs: int
    rows: list[Row]

    @property
    def why(self) -> list[Row]:
        return [row for row in self.rows if not row.never]

    @property
    def never(self) -> list[Row]:
        return why.without_unnamed([row for row in self.rows if row.never])


@dataclass(frozen=True)
class Taken:
    """One job that a worker has, as a row."""

    job: Job
    badge: words.Badge
    seconds: float


@require_safe
@never_cache
@login_required
def queue_page(request: HttpRequest) -> HttpResponse:
    """Show the queue; 403 for anybody who is no operator."""
    if not may_place(request.user):
        raise PermissionDenied(_("Only operators see the whole queue: it names everybody's Spaces."))
    seen = queue.read()
    context: dict[str, Any] = {
        "section": "queue",
        "figures": _figures(seen),
        "lines": [_line(entry, seen) for entry in seen.line],
        "more": seen.length - len(seen.line),
        "beside": [_line(entry, seen) for entry in seen.beside],
        "classes": _classes(seen),
        "taken": [
            Taken(job, words.badge(job, kind=job.requirement.kind), (seen.now - job.state_since).total_seconds())
            for job in all_as_shown(queue.taken())
        ],
    }
    part = "spaces/_queue.html" if request.GET.get("part") == "list" else "spaces/queue.html"
    return render(request, part, context)


def _line(entry: Entry, seen: Queue) -> Line:
    job, waiting = entry.job, entry.waiting
    return Line(
        job=job,
        place=waiting.place,
        needs=words.needs_of(job.requirement),
        seconds=(seen.now - job.queued_at).total_seconds(),
        short=_short(entry),
        klass=_class_of(job),
        asked_by=job.requested_by.get_username() if job.requested_by is not None else "",
    )


def _classes(seen: Queue) -> list[ClassOfNeeds]:
    """The classes of the listed jobs in the order of their oldest, each with what that one hears."""
    by_class: dict[str, list[Entry]] = {}
    for entry in seen.line:
        by_class.setdefault(_class_of(entry.job), []).append(entry)
    made = []
    for name, entries in by_class.items():
        oldest, need = entries[0], entries[0].job.requirement
        rows = why.rows(oldest.waiting, reader=OPERATOR, now=seen.now, gpu_count=need.gpu_count)
        made.append(ClassOfNeeds(name, words.needs_of(need), _short(oldest), len(entries), rows))
    return made


def _class_of(job: Job) -> str:
    """What is judged alike: the needs, and whether the worker's gateway matters."""
    return f"{job.requirement_id}-{job.mode}"


def _short(entry: Entry) -> str:
    nearest = entry.waiting.workers[0].name if entry.waiting.workers else ""
    return words.waiting_short(entry.waiting.code, worker=nearest, needed_mib=entry.job.requirement.vram_mib)


def _figures(seen: Queue) -> list[tuple[str, str]]:
    oldest = seen.line[0].job.queued_at if seen.line else None
    longest = rough((seen.now - oldest).total_seconds()) if oldest is not None else "–"
    return [(_("In line"), str(seen.length)), (_("Longest wait"), longest)]
