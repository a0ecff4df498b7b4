"""Live updates of a Space's pages as server-sent events. A plain ASGI app, mounted at /live/.

    /live/spaces/{owner}/{repo}/                                    the present state, at once and after each change
    /live/spaces/{owner}/{repo}/log?stream=…&lease=…&offset=…       lines of one log, from a byte offset on

A stream asks for the visitor and his permission in one database call, and then holds no connection and no thread: it
sleeps until a notice arrives, and reads with a fresh short call. Under Django a stream would keep both for its whole
life. The state is sent whole, never as a change, so a reader that missed something needs no history.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ParamSpec, Protocol, TypeVar
from urllib.parse import parse_qs

from asgiref.sync import ThreadSensitiveContext
from asgiref.typing import ASGIReceiveCallable, ASGISendCallable, HTTPScope
from channels.db import database_sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.auth.models import User
from django.db import Error as DatabaseError
from django.http import Http404, HttpRequest, parse_cookie

from jobs import logs, notices
from jobs.models import Lease
from jobs.states import FINAL, JobState
from spaces import ailment, log_lines
from spaces.access import Permission, permission
from spaces.forge.errors import ForgeError
from spaces.log_views import find_lease
from spaces.models import Space
from spaces.space_page import Person, look_up, newest_job, newest_lease
from spaces.stage import stage_key

COMMENT_SECONDS = 15.0  # so that no proxy between takes a quiet stream for a dead one
PERMISSION_SECONDS = 60.0  # how long a right that was taken away may still be used
TICK_SECONDS = 5.0  # while it waits or builds, reasons and logs move without a notice
LOG_SECONDS = 0.5  # logs send no notices: they are looked for
LOG_IDLE_SECONDS = 2.0  # … less often when nothing was written for a while
LOG_BYTES = 64 * 1024  # of text in one event
RETRY_MS = 2000

MOVING = frozenset({JobState.QUEUED, JobState.LEASED, JobState.BUILDING, JobState.STARTING, JobState.STOPPING})

WAKING = frozenset({"job", "access", "reach"})  # notices after which the state may be another one

P = ParamSpec("P")
T = TypeVar("T")


class Refused(Exception):
    """The stream is not opened; the status says why and nothing else does."""

    def __init__(self, status: int) -> None:
        super().__init__(str(status))
        self.status = status


class Gone(Exception):
    """The visitor lost the right to read the Space, or the Space is no more."""


class Mailbox(Protocol):
    """Where notices arrive."""

    async def get(self, timeout: float | None = None) -> notices.Notice | None: ...


@dataclass
class Visit:
    """One open stream: who reads which Space."""

    space: Space
    user: Person
    checked_at: float  # monotonic


async def application(scope: HTTPScope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
    """Open the stream that the path names, or answer with a bare status."""
    try:
        if scope["method"] != "GET":
            raise Refused(405)
        events = await _open(scope)
    except Refused as refused:
        await _answer(send, refused.status)
        return
    gone = asyncio.create_task(_disconnected(receive))
    try:
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [
                    (b"content-type", b"text/event-stream; charset=utf-8"),
                    (b"cache-control", b"no-store"),
                    (b"x-accel-buffering", b"no"),
                    (b"x-content-type-options", b"nosniff"),
                ],
                "trailers": False,
            }
        )
        async with aclosing(events):
            while (piece := await _next(events, gone)) is not None:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        if not gone.done():
            await send({"type": "http.response.body", "body": b"", "more_body": False})
    finally:
        gone.cancel()


async def _open(scope: HTTPScope) -> AsyncGenerator[bytes, None]:
    """Return the events of the stream that the path names. Raises Refused."""
    parts = [part for part in scope["path"].split("/") if part]
    if len(parts) not in (4, 5) or parts[:2] != ["live", "spaces"]:
        raise Refused(404)
    try:
        visit = await _in_thread(_visit, scope, parts[2], parts[3])
        if len(parts) == 4:
            return _state_events(visit)
        if parts[4] != "log":
            raise Refused(404)
        return await _log_stream(scope, visit)
    except Http404:
        raise Refused(404) from None
    except (ForgeError, DatabaseError):
        raise Refused(503) from None


async def _in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function that uses the database in a thread of its own, and give the connection back."""
    async with ThreadSensitiveContext():
        result: T = await database_sync_to_async(function)(*args, **kwargs)
        return result


async def _disconnected(receive: ASGIReceiveCallable) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _next(events: AsyncGenerator[bytes, None], gone: asyncio.Task[None]) -> bytes | None:
    """Return the next piece; None when the stream ended or its reader left."""
    piece = asyncio.ensure_future(anext(events, None))
    await asyncio.wait({piece, gone}, return_when=asyncio.FIRST_COMPLETED)
    if gone.done():
        piece.cancel()
        await asyncio.wait({piece})
        return None
    return await piece


async def _answer(send: ASGISendCallable, status: int) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [], "trailers": False})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


# --- who reads ------------------------------------------------------------------------------------------------------


def _visit(scope: HTTPScope, owner: str, name: str) -> Visit:
    """Find the visitor by the portal's session and the Space through his permission. Raises Http404."""
    user = _user(scope)
    page = look_up(user, owner, name)
    return Visit(space=page.space, user=user, checked_at=time.monotonic())


def _user(scope: HTTPScope) -> Person:
    headers = b"; ".join(value for key, value in scope["headers"] if key == b"cookie").decode("latin-1")
    request = HttpRequest()
    engine = import_module(settings.SESSION_ENGINE)
    request.session = engine.SessionStore(parse_cookie(headers).get(settings.SESSION_COOKIE_NAME))
    return get_user(request)


def _may_read(visit: Visit) -> bool:
    """Whether the visitor may still read. The account is read again: it may have been closed."""
    user = visit.user
    if user.is_authenticated:
        fresh = User.objects.filter(pk=user.pk, is_active=True).first()
        if fresh is None:
            return False
        user = fresh
    return permission(user, visit.space) >= Permission.READ


async def _check(visit: Visit, *, now: bool = False) -> None:
    """Ask for the permission again when the last answer is too old. Raises Gone."""
    if now or time.monotonic() - visit.checked_at >= PERMISSION_SECONDS:
        if not await _in_thread(_may_read, visit):
            raise Gone
        visit.checked_at = time.monotonic()


# --- the state ------------------------------------------------------------------------------------------------------


def read_state(space: Space) -> dict[str, Any]:
    """Return the present state of a Space, whole, and in codes: who draws it has a language. Four queries."""
    job = newest_job(space)
    lease = newest_lease(job)
    ails = ailment.of(job) if job is not None else None
    return {
        "key": stage_key(space, job),
        "state": job.state if job is not None else "",
        "job": str(job.id) if job is not None else "",
        "revision": job.revision if job is not None else "",
        "worker": job.worker.name if job is not None and job.worker is not None else "",
        "lease": str(lease.id) if lease is not None else "",
        "computes": job is not None and job.mode == job.Mode.BATCH and job.state == JobState.RUNNING,
        "ailment": ails.code if ails is not None else "",
    }


async def _state_events(visit: Visit) -> AsyncGenerator[bytes, None]:
    """Yield the state now, at each change, and at ticks while something moves; comments when all is quiet."""
    yield f"retry: {RETRY_MS}\n\n".encode()
    try:
        async with notices.mailbox(WAKING) as box:  # subscribed before the first read: nothing is missed
            state = await _in_thread(read_state, visit.space)
            yield _event("state", state)
            spoke = time.monotonic()
            while True:
                notice = await _notice(box, visit.space, TICK_SECONDS)
                await _check(visit, now=notice is not None and notice.kind == "access")
                moving = state["state"] in MOVING or state["computes"]
                if notice is None and not moving:
                    if time.monotonic() - spoke >= COMMENT_SECONDS:
                        yield b": still here\n\n"
                        spoke = time.monotonic()
                    continue
                state = await _in_thread(read_state, visit.space)
                yield _event("state", {**state, "tick": notice is None})
                spoke = time.monotonic()
    except Gone:
        yield _event("gone", {})
    except DatabaseError:
        return  # the reader comes back by himself and finds the database again, or a 503


async def _notice(box: Mailbox, space: Space, seconds: float) -> notices.Notice | None:
    """Return the next notice about this Space, or None when none came in time. Others' notices do not wake anybody."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        notice = await box.get(left)
        if notice is None:
            return None
        if notice.kind == notices.RESYNC or notice.ids.get("space") in (None, str(space.pk)):
            return notice
    return None


# --- logs -----------------------------------------------------------------------------------------------------------


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


async def _log_stream(scope: HTTPScope, visit: Visit) -> AsyncGenerator[bytes, None]:
    query = parse_qs(scope["query_string"].decode("latin-1"))
    stream = query.get("stream", [""])[0]
    if stream not in logs.STREAMS:
        raise Refused(404)
    lease = await _in_thread(find_lease, visit.space, query.get("lease", [""])[0])
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
            await _check(visit)
            news = await _in_thread(read_news, place)
            place.offset = news.offset
            if news.closed or news.open != shown_open:
                shown_open = news.open
                data = {"closed": news.closed, "open": news.open}
                yield _event("lines", data, event_id=f"{place.lease.id}:{place.offset}")
                spoke = time.monotonic()
                continue
            if news.ended:
                yield _event("end", {})
                return
            if time.monotonic() - spoke >= COMMENT_SECONDS:
                yield b": still here\n\n"
                spoke = time.monotonic()
            quiet = time.monotonic() - spoke
            await asyncio.sleep(LOG_SECONDS if quiet < 5 else LOG_IDLE_SECONDS)
    except Gone:
        yield _event("gone", {})
    except DatabaseError:
        return  # the reader comes back by himself and finds the database again, or a 503


def _event(name: str, data: dict[str, Any], *, event_id: str | uuid.UUID = "") -> bytes:
    head = f"id: {event_id}\n" if event_id else ""
    return f"{head}event: {name}\ndata: {json.dumps(data)}\n\n".encode()
