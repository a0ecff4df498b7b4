"""Live updates of a Space's pages as server-sent events. A plain ASGI app, mounted at /live/.

    /live/spaces/{owner}/{repo}/                                    the present state, at once and after each change
    /live/spaces/{owner}/{repo}/log?stream=…&lease=…&offset=…       lines of one log, from a byte offset on

A stream asks for the visitor and his permission in one database call, and then holds no connection and no thread: it
sleeps until a notice arrives, and reads with a fresh short call. Under Django a stream would keep both for its whole
life. The state is sent whole, never as a change, so a reader that missed something needs no history.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from asgiref.typing import ASGIReceiveCallable, ASGISendCallable, HTTPScope
from django.db import Error as DatabaseError
from django.http import Http404

from spaces.forge.errors import ForgeError
from spaces.live_log import log_stream
from spaces.live_state import state_events
from spaces.live_visit import Refused, in_thread, visit_of


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
        visit = await in_thread(visit_of, scope, parts[2], parts[3])
        if len(parts) == 4:
            return state_events(visit)
        if parts[4] != "log":
            raise Refused(404)
        return await log_stream(scope, visit)
    except Http404:
        raise Refused(404) from None
    except (ForgeError, DatabaseError):
        raise Refused(503) from None


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
