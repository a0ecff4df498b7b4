"""`/run/{owner}/{name}/…` over WebSocket on the portal: served in place, since its clients follow no redirect.

Only for pages of the portal and of the runtime origin, because the portal's own session counts here. Its server speaks
in whole messages, so they are received and sent again, with its limits; and few at once, for this is the process that
keeps the fleet. The data plane's own are in websocket.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from runtime_proxy import pages
from runtime_proxy.arrival import edge_of, first
from runtime_proxy.asked import Asked
from runtime_proxy.close_codes import (
    APP_BROKE,
    BAD_GATEWAY,
    GOING_AWAY,
    NO_LONGER_ADMITTED,
    NORMAL,
    NOT_ADMITTED_ANY_MORE,
    for_app,
    for_browser,
)
from runtime_proxy.entrance import OUTAGES, Passage, enter, still_admitted
from runtime_proxy.headers import to_app, to_browser
from runtime_proxy.limits import Limits, caller
from runtime_proxy.origin import is_runtime_origin, portal_origin
from runtime_proxy.pages import Answer
from runtime_proxy.plane import Plane, plane
from runtime_proxy.upload import Receive, Send
from runtime_proxy.upstream import GatewayFailed
from runtime_proxy.watch import RECHECK_SECONDS
from runtime_proxy.ws_client import HandshakeRefused, dial, raw_headers

Scope = dict[str, Any]

NO_CODE = 1005  # how servers and clients spell a close without a code
REFUSAL_SECONDS = 5.0  # for a refusal to be taken

# Each may hold some messages of 4 MiB: together they stay below a GiB.
LIMITS = Limits(per_visitor=16, per_space=64)
AT_ONCE = 128


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve one WebSocket on the portal's origin, for pages of the portal and of the runtime origin only."""
    await receive()  # websocket.connect
    origin = first(scope["headers"], b"origin").decode("latin-1")
    if origin.lower() != portal_origin().lower() and not is_runtime_origin(origin):
        await _refuse(scope, receive, send, pages.not_found(Asked("GET", scope["headers"], websocket=True)))
        return
    browser = _Browser(receive)
    try:
        await _serve(plane(), scope, browser, send)
    finally:
        browser.leave()


class _Browser:
    """`receive`, whose next message can be waited for by somebody who does not take it."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._next: asyncio.Task[Any] | None = None

    def next(self) -> asyncio.Task[Any]:
        if self._next is None:
            self._next = asyncio.create_task(self._receive())  # type: ignore[arg-type]  # a coroutine in all servers
        return self._next

    async def receive(self) -> Any:
        if self._next is None:
            return await self._receive()
        message = await self._next
        self._next = None
        return message

    def leave(self) -> None:
        if self._next is not None:
            self._next.cancel()


async def _serve(here: Plane, scope: Scope, browser: _Browser, send: Send) -> None:
    receive = browser.receive
    headers = scope["headers"]
    asked = Asked("GET", headers, websocket=True)
    edge = edge_of(scope)
    try:
        visitor = await here.portal_visitor(headers)
    except OUTAGES:
        await _refuse(scope, receive, send, pages.overloaded(asked))
        return
    way = await enter(here, _raw_path(scope), scope["query_string"], visitor, asked, headers=headers, elsewhere="serve")
    if isinstance(way, Answer):
        await _refuse(scope, receive, send, way)
        return
    who = caller(visitor, edge)
    if LIMITS.under_way >= AT_ONCE or LIMITS.take(who, way.admission.space_id) is not None:
        await _refuse(scope, receive, send, pages.overloaded(asked))
        return
    try:
        await _connect(here, scope, browser, send, way)
    finally:
        LIMITS.give(who, way.admission.space_id)


async def _connect(here: Plane, scope: Scope, browser: _Browser, send: Send, way: Passage) -> None:
    """Pass the handshake on, and what the app makes of it."""
    receive, headers, edge = browser.receive, scope["headers"], edge_of(scope)
    asked = Asked("GET", headers, websocket=True)
    upstream = way.upstream
    fields = to_app(headers, mount=upstream.mount, edge=edge, cookies=here.cookies, websocket=True)
    try:
        connection = await _unless_left(browser, dial(upstream, way.path, fields, list(scope.get("subprotocols", []))))
    except HandshakeRefused as refusal:
        passed = to_browser(
            refusal.headers, mount=upstream.mount, edge=edge, cookies=here.cookies, status=refusal.status
        )
        passed = [(name, value) for name, value in passed if name != b"content-length"]
        await _refuse(scope, receive, send, Answer(refusal.status, passed, refusal.body))
        return
    except GatewayFailed as failure:
        await _refuse(scope, receive, send, pages.gateway_failed(upstream, asked, failure))
        return
    if connection is None:
        await send({"type": "websocket.close"})  # for the servers' books: nobody is there to read it
        return
    said = raw_headers(connection.response)
    accepted = to_browser(said, mount=upstream.mount, edge=edge, cookies=here.cookies, status=101)

    async def may_stay() -> bool:
        return await still_admitted(here, way, lambda: here.portal_visitor(headers))

    try:
        await send({"type": "websocket.accept", "subprotocol": connection.subprotocol, "headers": accepted})
        await _carry(connection, receive, send, may_stay)
    finally:
        connection.transport.abort()


async def _unless_left(browser: _Browser, handshake: Coroutine[Any, Any, ClientConnection]) -> ClientConnection | None:
    """Return what the handshake with the app comes to; None, and the handshake is over, when the browser leaves."""
    dialling = asyncio.create_task(handshake)
    try:
        # Before it is accepted, a browser can say nothing but that it leaves.
        await asyncio.wait({dialling, browser.next()}, return_when=asyncio.FIRST_COMPLETED)
        if dialling.done():
            return dialling.result()
        return None
    finally:
        if not dialling.done():
            dialling.cancel()
            await asyncio.gather(dialling, return_exceptions=True)


async def _carry(
    connection: ClientConnection, receive: Receive, send: Send, may_stay: Callable[[], Awaitable[bool]]
) -> None:
    """Carry messages until one side ends, and tell the other how it ended."""
    inbound = asyncio.create_task(_from_browser(receive, connection))
    outbound = asyncio.create_task(_from_app(connection, send))
    try:
        while True:
            done, _ = await asyncio.wait(
                {inbound, outbound}, timeout=RECHECK_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            if done:
                break
            if not await may_stay():
                await _close_browser(send, NO_LONGER_ADMITTED, NOT_ADMITTED_ANY_MORE)
                await connection.close(GOING_AWAY)
                return
        if outbound in done:
            await _close_browser(send, *outbound.result())
        else:
            await connection.close(*inbound.result())
    except OSError:
        pass  # the browser left while it was being told
    finally:
        inbound.cancel()
        outbound.cancel()
        await asyncio.gather(inbound, outbound, return_exceptions=True)


async def _from_browser(receive: Receive, connection: ClientConnection) -> tuple[int, str]:
    """Carry the browser's messages to the app; return how the browser closed, as it may be told to the app."""
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            code = message.get("code") or NORMAL
            if code == NO_CODE:
                return NORMAL, ""
            return for_app(code), message.get("reason") or ""
        content = message.get("bytes")
        try:
            await connection.send(message["text"] if content is None else content)
        except ConnectionClosed:
            await asyncio.Event().wait()  # the other direction reports how


async def _from_app(connection: ClientConnection, send: Send) -> tuple[int, str]:
    """Carry the app's messages to the browser; return how the app closed, as it may be told to the browser."""
    while True:
        try:
            message = await connection.recv()
        except ConnectionClosed as closed:
            if closed.sent is not None and not closed.rcvd_then_sent:  # ours: a message beyond the limit, say
                return closed.sent.code, closed.sent.reason
            if closed.rcvd is None:
                return BAD_GATEWAY, APP_BROKE
            return for_browser(None if closed.rcvd.code == NO_CODE else closed.rcvd.code), closed.rcvd.reason
        key = "text" if isinstance(message, str) else "bytes"
        await send({"type": "websocket.send", key: message})


async def _close_browser(send: Send, code: int, reason: str) -> None:
    await send({"type": "websocket.close", "code": code, "reason": reason})


async def _refuse(scope: Scope, receive: Receive, send: Send, whole: Answer) -> None:
    """Answer the handshake with a status, where the server can; daphne can only say 403."""
    if "websocket.http.response" not in (scope.get("extensions") or {}):
        await send({"type": "websocket.close"})
        return
    await send({"type": "websocket.http.response.start", "status": whole.status, "headers": whole.headers})
    await send({"type": "websocket.http.response.body", "body": whole.body})
    # uvicorn takes a return before the connection is gone for a forgotten handshake, and logs an error each time. It
    # says twice that the client is gone: when the answer is written, and when the connection is closed.
    with suppress(TimeoutError):
        async with asyncio.timeout(REFUSAL_SECONDS):
            await receive()
            await receive()


def _raw_path(scope: Scope) -> bytes:
    """Return the path as it was spelt. Some servers leave the query on it."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode("utf-8")
    return raw.partition(b"?")[0]
