"""The Logs tab: build, run and system text of any attempt, drawn from its end, and the whole as a download."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from jobs import logs
from jobs.models import Job, Lease, LogChunk
from jobs.states import JobState
from spaces import log_lines
from spaces.models import Space
from spaces.space_page import SpacePage, newest_lease, page_context, space_view

SHOWN_BYTES = 256 * 1024  # of the end of a stream; the rest is a download away
ATTEMPTS_SHOWN = 8
WHOLE_BYTES = 64 * 1024 * 1024  # more than the cap of a stream: everything that is stored

END_MISSING = "\n… the end of this log was not delivered …\n"  # in the text, like the line about what was dropped


@dataclass(frozen=True)
class Shown:
    """The end of a stream, ready to draw, and where a live reader goes on."""

    lines: list[log_lines.Line]
    open_line: log_lines.Line | None  # the line that is still being written
    begin: int  # bytes before what is shown
    offset: int  # bytes up to the end of the last complete line


@require_safe
@never_cache
@space_view
def logs_tab(request: HttpRequest, page: SpacePage) -> HttpResponseBase:
    """Show one stream of one attempt: the newest, unless the address names another."""
    wanted = request.GET.get("lease", "")
    lease = find_lease(page.space, wanted) if wanted else newest_lease(page.job)
    stream = request.GET.get("stream", "") or _telling_stream(page.job)
    if stream not in logs.STREAMS:
        raise Http404("There is no such log.")
    context = page_context(
        page,
        "logs",
        lease=lease,
        stream=stream,
        streams=LogChunk.Stream.choices,
        attempts=_attempts(page.space),
        pinned=bool(wanted),
        live=lease is not None and lease.released_at is None,
        shown=read_end(lease, stream) if lease is not None else None,
        end_missing=lease is not None and logs.lacks_its_end(lease, stream),
    )
    part = "spaces/_log.html" if request.GET.get("part") == "log" else "spaces/logs.html"
    return render(request, part, context)


@require_safe
@never_cache
@space_view
def download(request: HttpRequest, page: SpacePage, lease_id: uuid.UUID, stream: str) -> HttpResponseBase:
    """Hand out everything that is stored of a stream, as the program wrote it, and say where its end is missing."""
    if stream not in logs.STREAMS:
        raise Http404("There is no such log.")
    lease = find_lease(page.space, str(lease_id))
    text = logs.read(lease, stream, limit_bytes=WHOLE_BYTES).text
    if logs.lacks_its_end(lease, stream):
        text += END_MISSING
    answer = HttpResponse(text, content_type="text/plain; charset=utf-8")
    name = f"{page.space.owner}-{page.space.name}-{stream}.txt".encode("ascii", "replace").decode().replace("?", "_")
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer


def find_lease(space: Space, lease_id: str) -> Lease:
    """Return an attempt of this Space; Http404 for anything else, whoever's it may be."""
    try:
        return Lease.objects.select_related("job", "worker").get(pk=uuid.UUID(lease_id), job__space=space)
    except (ValueError, Lease.DoesNotExist):
        raise Http404("There is no such run.") from None


def read_end(lease: Lease, stream: str) -> Shown:
    """Return the end of a stream. Its first line is left out where it began before what is read."""
    begin = logs.tail_offset(lease, stream, limit_bytes=SHOWN_BYTES)
    piece = logs.read(lease, stream, after=begin, limit_bytes=2 * SHOWN_BYTES)
    complete, rest = log_lines.split(piece.text)
    if begin and complete:
        begin += len(complete[0].encode()) + 1
        complete = complete[1:]
    return Shown(
        lines=[log_lines.render(line) for line in complete],
        open_line=log_lines.render(rest) if rest else None,
        begin=begin,
        offset=piece.next_offset - len(rest.encode()),
    )


def _telling_stream(job: Job | None) -> str:
    """Return the stream that a visitor most likely wants to see."""
    if job is None or job.state in (JobState.QUEUED, JobState.LEASED):
        return LogChunk.Stream.SYSTEM.value
    failed_early = job.state == JobState.FAILED and job.first_ran_at is None and job.build_ended_at is None
    if job.state == JobState.BUILDING or failed_early:
        return LogChunk.Stream.BUILD.value
    return LogChunk.Stream.RUN.value


def _attempts(space: Space) -> list[Lease]:
    """Return the newest attempts of all runs. One query."""
    found = Lease.objects.filter(job__space=space).select_related("job", "worker").order_by("-acquired_at")
    return list(found[:ATTEMPTS_SHOWN])
