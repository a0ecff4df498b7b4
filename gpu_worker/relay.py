"""Carry one request to an app and its answer back, byte for byte, without holding either.

Bodies pass in the coding they came in, heads and chunks as we write them ourselves (http_framing.py): no app can put
bytes between two answers of one connection to the data plane, which other leases' answers pass too. Informational
answers (100, 103) pass; an upgraded connection (WebSocket) becomes two plain streams, so subprotocol, frames, close
code and reason are the app's own. A client that goes away ends the app's request, a handshake too; an app that breaks
off breaks the client's answer.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, NamedTuple

from gpu_worker.http_framing import (
    FRAMING,
    BadMessage,
    Body,
    BodyUntilClose,
    Head,
    is_bodiless,
    parse_response,
    request_body,
    response_body,
    write_head,
)
from gpu_worker.peer import LINGER_SECONDS, HeadTooLong, Peer, PeerGone

CONNECT_SECONDS = 5.0
REUSE_SECONDS = 2.0  # apps close idle connections after 2 to 5 s; a used one must not be cut under our request
MOST_INFORMATIONAL = 32  # of one request: an app could go on for ever
RUNTIME_HEADER = b"x-openface-runtime"
OWN_PREFIX = b"x-openface-"


class Destination(NamedTuple):
    """Where an app is, and whose it is: no connection is shared between leases, though they may get the same port."""

    lease: str
    host: str
    port: int


class NoAnswer(Exception):
    """The app gave no answer that can be passed on, and the client has seen none. *reason* is for its header."""

    reason: bytes


class AppUnreachable(NoAnswer):
    """Nothing accepts our connection."""

    reason = b"app-unreachable"


class AppBrokeOff(NoAnswer):
    """The app closed the connection, or answered something that is not HTTP."""

    reason = b"app-broke-off"


class AppHeadTooLarge(NoAnswer):
    """The app's answer has a head above our limit."""

    reason = b"app-head-too-large"


class Relay:
    """Relays to apps; keeps their idle connections for the next request. Lives in one event loop."""

    def __init__(self) -> None:
        self._idle: dict[Destination, dict[Peer, asyncio.Task[None]]] = {}

    async def carry(self, client: Peer, request: Head, target: bytes, place: Destination) -> bool:
        """Answer *request* from the app at *place*; whether *client* may send another request.

        Raises NoAnswer before anything was answered, PeerGone and BadMessage when a side broke.
        """
        bodiless = request_body(request).complete  # also: no connection is made for a request of doubtful length
        repeatable = bodiless and request.method in (b"GET", b"HEAD", b"OPTIONS")
        exchange = _Exchange(client, request, target)
        app = self._reuse(place) if repeatable and request.upgrade is None else None
        if app is not None:
            try:
                return await self._run(exchange, app, place)
            except AppBrokeOff:
                if client.at_end:
                    raise
                # the app closed its idle connection just now: nothing was lost, ask again on a new one
        return await self._run(exchange, await _connect(place), place)

    async def _run(self, exchange: _Exchange, app: Peer, place: Destination) -> bool:
        work = asyncio.ensure_future(exchange.run(app))
        first: set[asyncio.Future[Any]] = {work, exchange.client.gone, exchange.upgraded}
        try:
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            # once upgraded, a client that has ended its direction still reads: the two streams see to it themselves
            if not work.done() and not exchange.upgraded.done():
                raise PeerGone("the client went away")
            return await work
        finally:
            work.cancel()
            if exchange.app_reusable and not app.at_end and not app.buffer:
                self._keep(app, place)
            elif exchange.broken:
                app.abort()
            else:
                app.close()

    def _keep(self, app: Peer, place: Destination) -> None:
        watch = asyncio.get_running_loop().create_task(self._watch_idle(app, place))
        self._idle.setdefault(place, {})[app] = watch

    async def _watch_idle(self, app: Peer, place: Destination) -> None:
        """Close an idle connection when its time is over, or the app closes it, or speaks unasked."""
        with contextlib.suppress(TimeoutError, PeerGone):
            async with asyncio.timeout(REUSE_SECONDS):
                await app.fill()
        app.close()
        idle = self._idle.get(place, {})
        idle.pop(app, None)
        if not idle:
            self._idle.pop(place, None)

    def _reuse(self, place: Destination) -> Peer | None:
        idle = self._idle.get(place, {})
        while idle:
            app, watch = idle.popitem()
            watch.cancel()
            if not app.at_end and not app.buffer:
                return app
            app.close()
        return None

    def forget(self, place: Destination) -> None:
        """The app at *place* has ended."""
        for app, watch in self._idle.pop(place, {}).items():
            watch.cancel()
            app.close()

    def close(self) -> None:
        for place in list(self._idle):
            self.forget(place)


async def _connect(place: Destination) -> Peer:
    loop = asyncio.get_running_loop()
    try:
        _, peer = await asyncio.wait_for(loop.create_connection(Peer, place.host, place.port), CONNECT_SECONDS)
    except (OSError, TimeoutError) as problem:
        raise AppUnreachable(str(problem)) from problem
    return peer


class _Exchange:
    """One request and its answer."""

    def __init__(self, client: Peer, request: Head, target: bytes) -> None:
        self.client, self.request, self._target = client, request, target
        self.upgraded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._bad_body: BadMessage | None = None
        self.broken = True
        self.app_reusable = False

    async def run(self, app: Peer) -> bool:
        try:
            await app.write(self._request_head())
        except PeerGone as problem:
            raise AppBrokeOff(str(problem)) from problem
        sending = asyncio.ensure_future(self._send_body(app))
        sending.add_done_callback(_heard)
        try:
            response, body = await self._final_head(app)
            if response.status == 101:
                self.upgraded.set_result(None)
                await self.client.write(write_head(_status_line(response), _upgrade_fields(response)))
                await sending
                self.broken = not await _join(self.client, app)
                return False
            return await self._answer(app, response, body, sending)
        except NoAnswer:
            if self._bad_body is not None:
                raise self._bad_body from None
            raise
        finally:
            sending.cancel()

    async def _send_body(self, app: Peer) -> None:
        try:
            await _pass_body(self.client, app, request_body(self.request))
        except BadMessage as problem:
            self._bad_body = problem
            app.abort()  # it must not take what it has for a request, and need not wait for the rest
            raise

    async def _final_head(self, app: Peer) -> tuple[Head, Body]:
        for _ in range(MOST_INFORMATIONAL):
            response, body = await self._next_head(app)
            if response.status >= 200 or response.status == 101:
                return response, body
            if self.request.minor_version:
                fields = _passable(response.without(*FRAMING))
                await self.client.write(write_head(_status_line(response), fields))
        raise AppBrokeOff("too many informational answers")

    async def _next_head(self, app: Peer) -> tuple[Head, Body]:
        try:
            head = await app.read_head()
            if head is None:
                raise AppBrokeOff("the app closed the connection without an answer")
            response = parse_response(head)
            if response.status == 101 and self.request.upgrade is None:
                raise BadMessage("the app upgraded unasked")
            return response, response_body(response, self.request.method)
        except HeadTooLong as problem:
            raise AppHeadTooLarge(str(problem)) from problem
        except (PeerGone, BadMessage) as problem:
            raise AppBrokeOff(str(problem)) from problem

    async def _answer(self, app: Peer, response: Head, body: Body, sending: asyncio.Future[None]) -> bool:
        keep = self.request.keeps_alive and not isinstance(body, BodyUntilClose)
        fields = _passable(response.without(*(FRAMING if is_bodiless(response.status) else ())))
        if not keep:
            fields.append((b"Connection", b"close"))
        await self.client.write(write_head(_status_line(response), fields))
        await _pass_body(app, self.client, body)
        self.broken = False
        if not sending.done() or sending.exception() is not None:
            # the app answered without reading all: the rest of the request is nobody's
            sending.cancel()
            await self.client.linger()
            return False
        self.app_reusable = response.keeps_alive and not isinstance(body, BodyUntilClose)
        return keep

    def _request_head(self) -> bytes:
        upgrade = self.request.upgrade
        if upgrade is None:
            fields = self.request.without(RUNTIME_HEADER)
        else:
            # without extensions the app's frames are plain, as the next hop expects them
            fields = self.request.without(RUNTIME_HEADER, b"sec-websocket-extensions")
            fields += [(b"Connection", b"Upgrade"), (b"Upgrade", upgrade)]
        version = b"HTTP/1.1" if self.request.minor_version else b"HTTP/1.0"
        return write_head(b" ".join((self.request.method, self._target, version)), fields)


def _heard(sending: asyncio.Future[None]) -> None:
    """How the upload ended is asked for only where it matters; asyncio would log the other cases as forgotten."""
    if not sending.cancelled():
        sending.exception()


def _status_line(response: Head) -> bytes:
    return b"HTTP/1.1 %d %s" % (response.status, response.reason)


def _upgrade_fields(response: Head) -> list[tuple[bytes, bytes]]:
    return _passable([(name, value) for name, value in response.fields if name.lower() not in FRAMING])


def _passable(fields: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Without what only the gateway may say."""
    return [(name, value) for name, value in fields if not name.lower().startswith(OWN_PREFIX)]


async def _pass_body(source: Peer, sink: Peer, body: Body) -> None:
    """Pass one body as it comes. Raises BadMessage or PeerGone when it breaks off."""
    while not body.complete:
        used, data = body.take(source.buffer) if source.buffer else (0, b"")
        if used:
            source.drop(used)
            if data:
                await sink.write(data)
        elif not await source.fill():
            body.end_of_stream()


async def _join(client: Peer, app: Peer) -> bool:
    """Two plain streams until both ends have closed; a break of one breaks the other. Whether both came to an end."""
    ways = {asyncio.ensure_future(_stream(client, app)), asyncio.ensure_future(_stream(app, client))}
    try:
        done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in done:
            way.result()
        _, pending = await asyncio.wait(ways, timeout=LINGER_SECONDS)
        for way in ways - pending:
            way.result()
        return not pending
    finally:
        for way in ways:
            way.cancel()


async def _stream(source: Peer, sink: Peer) -> None:
    while source.buffer or await source.fill():
        await sink.write(source.take(len(source.buffer)))
    sink.write_end()
