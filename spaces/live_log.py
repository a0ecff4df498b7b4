"""Lines of one log as they are written, from a byte offset on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from urllib.parse import parse_qs

from asgiref.typing import HTTPScope
from django.db import Error as DatabaseError

from jobs import logs
from jobs.models import Lease
from jobs.states import FINAL, JobState
from spaces import log_lines
from spaces.live_visit import COMMENT_SECONDS, RETRY_MS, Gone, Refused, Visit, check, event, in_thread
from spaces.log_views import find_lease

LOG_SECONDS = 0.5  # logs send no notices: they are looked for
LOG_IDLE_SECONDS = 2.0  # … less often when nothing was written for a while
LOG_BYTES = 64 * 1024  # of text in one event


@dataclass
class LogPlace:
    """How far one reader of one stream has come: to the end of a line, always."""

    lease: Lease
    stream: str
    offset: int


@dataclass(frozen=True)
class LogNews:
    """Finished lines and the line that is being written, as HTML; `ended`: nothing more will come."""

    closed: str
    open: str
    offset: int
    ended: bool


async def log_stream(scope: HTTPScope, visit: Visit) -> AsyncGenerator[bytes, None]:
    """Return the events of the log that the query names. Raises Refused, Http404 (no such attempt)."""
    query = parse_qs(scope["query_string"].decode("latin-1"))
    stream = query.get("stream", [""])[0]
    if stream not in logs.STREAMS:
        raise Refused(404)
    lease = await in_thread(find_lease, visit.space, query.get("lease", [""])[0])
    offset = _offset(scope, lease, query.get("offset", ["0"])[0])
    return _log_events(visit, LogPlace(lease, stream, offset))


def _offset(scope: HTTPScope, lease: Lease, asked: str) -> int:
    """Return where to begin: where a broken connection stopped, else where the page says it ends."""
    last = next((value.decode("latin-1") for key, value in scope["headers"] if key == b"last-event-id"), "")
    lease_id, _, position = last.partition(":")
    if lease_id == str(lease.id):
        asked = position
    if not asked.isascii() or not asked.isdigit() or len(asked) > 15:
        raise Refused(400)
    return int(asked)


def read_news(place: LogPlace) -> LogNews:
    """Return what was written after `place`, up to about LOG_BYTES, ending with a whole line."""
    piece = logs.read(place.lease, place.stream, after=place.offset, limit_bytes=LOG_BYTES)
    complete, rest = log_lines.split(piece.text)
    if len(rest) >= LOG_BYTES // 2:  # a progress bar, or one endless line: go on behind what nobody will see again
        overwritten, rest = log_lines.cut_overwritten(rest)
        if not overwritten:
            complete, rest = [*complete, rest], ""
    ended = False
    if not complete:
        row = Lease.objects.filter(pk=place.lease.pk).values_list("released_at", "job__state").first()
        ended = row is None or row[0] is not None or JobState(row[1]) in FINAL
    return LogNews(
        closed="".join(log_lines.as_item(log_lines.render(line)) for line in complete),
        open=log_lines.as_item(log_lines.render(rest), still_open=True) if rest else "",
        offset=piece.next_offset - len(rest.encode()),
        ended=ended,
    )


async def _log_events(visit: Visit, place: LogPlace) -> AsyncGenerator[bytes, None]:
    yield f"retry: {RETRY_MS}\n\n".encode()
    spoke = time.monotonic()
    shown_open = ""
    try:
        while True:
            await check(visit)
            news = await in_thread(read_news, place)
            place.offset = news.offset
            if news.closed or news.open != shown_open:
                shown_open = news.open
                data = {"closed": news.closed, "open": news.open}
                yield event("lines", data, event_id=f"{place.lease.id}:{place.offset}")
                spoke = time.monotonic()
                continue
            if news.ended:
                yield event("end", {})
                return
            if time.monotonic() - spoke >= COMMENT_SECONDS:
                yield b": still here\n\n"
                spoke = time.monotonic()
            quiet = time.monotonic() - spoke
            await asyncio.sleep(LOG_SECONDS if quiet < 5 else LOG_IDLE_SECONDS)
    except Gone:
        yield event("gone", {})
    except DatabaseError:
        return  # the reader comes back by himself and finds the database again, or a 503
