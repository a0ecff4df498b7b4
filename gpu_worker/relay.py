"""Carry one request to an app and its answer back, byte for byte, without holding either.

Bodies pass in the coding they came in; informational answers (100, 103) pass as they come; an upgraded connection
(WebSocket) becomes two plain streams, so subprotocol, frames, close code and reason are the app's own. A client that
goes away ends the app's request; an app that breaks off breaks the client's answer.
"""

from __future__ import annotations

import asyncio
from typing import Any

from gpu_worker.http_framing import (
    BadMessage,
    Body,
    BodyUntilClose,
    Head,
    parse_response,
    request_body,
    response_body,
    write_head,
)
from gpu_worker.peer import Peer, PeerGone

CONNECT_SECONDS = 5.0
REUSE_SECONDS = 2.0  # apps close idle connections after 2 to 5 s; a used one must not be cut under our request
LINGER_SECONDS = 5.0
RUNTIME_HEADER = b"x-openface-runtime"
OWN_PREFIX = b"x-openface-"

Address = tuple[str, int]


class AppUnreachable(Exception):
    """Nothing accepts our connection."""


class Relay:
    """Relays to apps; keeps their idle connections for the next request. Lives in one event loop."""

    def __init__(self) -> None:
        self._idle: dict[Address, list[Peer]] = {}

    async def carry(self, client: Peer, request: Head, target: bytes, address: Address) -> bool:
        """Answer *request* from the app at *address*; whether *client* may send another request.

        Raises AppUnreachable before anything was answered, PeerGone and BadMessage when a side broke.
        """
        bodiless = request_body(request).complete  # also: no connection is made for a request of doubtful length
        repeatable = bodiless and request.method in (b"GET", b"HEAD", b"OPTIONS")
        exchange = _Exchange(client, request, target)
        app = self._reuse(address) if repeatable and request.upgrade is None else None
        if app is not None:
            try:
                return await self._run(exchange, app, address)
            except PeerGone:
                if exchange.answered or client.at_end:
                    raise
                # the app closed its idle connection just now: nothing was lost, ask again on a new one
        return await self._run(exchange, await _connect(address), address)

    async def _run(self, exchange: _Exchange, app: Peer, address: Address) -> bool:
        work = asyncio.ensure_future(exchange.run(app))
        either: set[asyncio.Future[Any]] = {work, exchange.client.gone}
        try:
            if exchange.request.upgrade is None:
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if not work.done():
                    raise PeerGone("the client went away")
            return await work
        finally:
            work.cancel()
            if exchange.app_reusable and not app.at_end and not app.buffer:
                self._keep(app, address)
            elif exchange.broken:
                app.abort()
            else:
                app.close()

    def _keep(self, app: Peer, address: Address) -> None:
        self._idle.setdefault(address, []).append(app)
        asyncio.get_running_loop().call_later(REUSE_SECONDS, self._expire, app, address)

    def _expire(self, app: Peer, address: Address) -> None:
        idle = self._idle.get(address, [])
        if app in idle:
            idle.remove(app)
            app.close()
            if not idle:
                del self._idle[address]

    def _reuse(self, address: Address) -> Peer | None:
        idle = self._idle.get(address, [])
        while idle:
            app = idle.pop()
            if not app.at_end and not app.buffer:
                return app
            app.close()
        return None

    def forget(self, address: Address) -> None:
        """The app at *address* has ended."""
        for app in self._idle.pop(address, []):
            app.close()

    def close(self) -> None:
        for address in list(self._idle):
            self.forget(address)


async def _connect(address: Address) -> Peer:
    loop = asyncio.get_running_loop()
    try:
        _, peer = await asyncio.wait_for(loop.create_connection(Peer, *address), CONNECT_SECONDS)
    except (OSError, TimeoutError) as problem:
        raise AppUnreachable(str(problem)) from problem
    return peer


class _Exchange:
    """One request and its answer."""

    def __init__(self, client: Peer, request: Head, target: bytes) -> None:
        self.client, self.request, self._target = client, request, target
        self.answered = False
        self.broken = True
        self.app_reusable = False

    async def run(self, app: Peer) -> bool:
        await app.write(self._request_head())
        sending = asyncio.ensure_future(_pass_body(self.client, app, request_body(self.request)))
        try:
            response = await self._final_head(app)
            if response.status == 101:
                self.answered = True
                await self.client.write(write_head(_status_line(response), _upgrade_fields(response)))
                await sending
                await _join(self.client, app)
                self.broken = False
                return False
            return await self._answer(app, response, sending)
        finally:
            sending.cancel()

    async def _final_head(self, app: Peer) -> Head:
        while True:
            head = await app.read_head()
            if head is None:
                raise PeerGone("the app closed the connection without an answer")
            response = parse_response(head)
            if response.status == 101 and self.request.upgrade is None:
                raise BadMessage("the app upgraded unasked")
            if response.status >= 200 or response.status == 101:
                return response
            if self.request.minor_version:
                await self.client.write(head)

    async def _answer(self, app: Peer, response: Head, sending: asyncio.Future[None]) -> bool:
        body = response_body(response, self.request.method)
        keep = self.request.keeps_alive and not isinstance(body, BodyUntilClose)
        fields = [(name, value) for name, value in response.without() if not name.lower().startswith(OWN_PREFIX)]
        if not keep:
            fields.append((b"Connection", b"close"))
        self.answered = True
        await self.client.write(write_head(_status_line(response), fields))
        await _pass_body(app, self.client, body)
        self.broken = False
        if not sending.done():
            # the app answered without reading all: the rest of the request is nobody's
            await _linger(self.client, sending)
            return False
        self.app_reusable = (
            response.keeps_alive and not isinstance(body, BodyUntilClose) and sending.exception() is None
        )
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


def _status_line(response: Head) -> bytes:
    return b"HTTP/1.1 %d %s" % (response.status, response.reason)


def _upgrade_fields(response: Head) -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, value in response.fields if not name.lower().startswith(OWN_PREFIX)]


async def _pass_body(source: Peer, sink: Peer, body: Body) -> None:
    """Pass one body as it comes. Raises BadMessage or PeerGone when it breaks off."""
    while not body.complete:
        size = body.take(source.buffer) if source.buffer else 0
        if size:
            await sink.write(source.take(size))
        elif not await source.fill():
            body.end_of_stream()


async def _join(client: Peer, app: Peer) -> None:
    """Two plain streams until both ends have closed; a break of one breaks the other."""
    ways = {asyncio.ensure_future(_stream(client, app)), asyncio.ensure_future(_stream(app, client))}
    try:
        done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in done:
            way.result()
        _, pending = await asyncio.wait(ways, timeout=LINGER_SECONDS)
        for way in ways - pending:
            way.result()
    finally:
        for way in ways:
            way.cancel()


async def _stream(source: Peer, sink: Peer) -> None:
    while source.buffer or await source.fill():
        await sink.write(source.take(len(source.buffer)))
    sink.write_end()


async def _linger(client: Peer, sending: asyncio.Future[None]) -> None:
    """Let the client read our answer: a close with unread data in our socket would reset it away."""
    sending.cancel()
    client.write_end()
    try:
        async with asyncio.timeout(LINGER_SECONDS):
            client.buffer.clear()
            while await client.fill():
                client.buffer.clear()
    except (TimeoutError, PeerGone):
        pass
