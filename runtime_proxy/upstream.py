"""The client side: connections to the workers' gateways, of each lease its own.

It knows addresses that `routing` made and nothing else, follows no redirect, keeps no cookie, decodes no body, and
sends a raw path as it is.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import defaultdict
from functools import cache, lru_cache
from typing import NamedTuple
from urllib.parse import urlsplit

from runtime_proxy.client_http import Broken, Connection, Response, Silent
from runtime_proxy.headers import RawHeaders
from runtime_proxy.routing import Upstream
from runtime_proxy.upload import Upload

CONNECT_SECONDS = 5.0  # a worker on another continent answers in one; longer is a closed firewall
IDLE_SECONDS = 3600.0  # apps think for long; no limit on the whole
KEEP_SECONDS = 15.0  # idle connections: well below the gateway's 120, so that we never send on one that it closes
LOOK_SECONDS = 5.0  # how often connections are looked at for the two above

RUNTIME_HEADER = b"x-openface-runtime"
MADE_BY_GATEWAY = b"x-openface-gateway"  # on the gateway's own answers; it removes the header from an app's
# What may be asked again where an idle connection turns out to be closed (RFC 9110 §9.2.2).
_REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
_UPGRADE: RawHeaders = [(b"connection", b"Upgrade"), (b"upgrade", b"websocket")]


class GatewayFailed(Exception):
    """The request did not get as far as the app."""


class GatewayRefused(GatewayFailed):
    """The gateway cannot be reached or broke off before it answered."""


class GatewaySilent(GatewayFailed):
    """The gateway did not answer in time."""


class GatewayAnswered(GatewayFailed):
    """The gateway answered in the app's place: it does not serve this lease (any more), or cannot reach the app."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"The gateway says {reason}.")
        self.app_unreachable = reason == "app-unreachable"
        self.app_broke_off = reason in ("app-broke-off", "app-head-too-large")


class Upgraded(NamedTuple):
    """A connection that speaks another protocol from now on. Its reading is paused; `rest` came after the head."""

    headers: RawHeaders
    transport: asyncio.Transport
    rest: bytes


class UpstreamPool:
    """Open while the process serves. For one event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._idle: defaultdict[str, list[Connection]] = defaultdict(list)
        self._open: set[Connection] = set()
        self._looking: asyncio.TimerHandle | None = None

    async def close(self) -> None:
        """Cut all connections."""
        if self._looking is not None:
            self._looking.cancel()
        for connection in list(self._open):
            connection.abort()
        self._open.clear()
        self._idle.clear()
        await asyncio.sleep(0)  # transports say goodbye in the loop's next turn

    async def request(
        self, method: str, upstream: Upstream, path: bytes, headers: RawHeaders, body: Upload | None
    ) -> Response:
        """Send the request and return when the answer's head is there. `close` the answer when done with it.

        Raises GatewayRefused, GatewaySilent and GatewayAnswered; ClientGone where the browser leaves while its
        request's body is being sent.
        """
        place = _place(upstream.base)
        head = _head(method, place, path, headers, upstream.token, chunked=body is not None and body.chunked)
        while True:
            connection = self._take(upstream.base)
            is_fresh = connection is None
            if connection is None:
                connection = await self._connect(place, upstream.base)
            response = connection.ask(head, head_only=method == "HEAD")
            if body is not None:
                response.sends(self._loop.create_task(connection.send(body)))
            try:
                await response.head()
            except Silent as error:
                response.close()
                raise GatewaySilent(str(error)) from error
            except Broken as error:
                response.close()
                if is_fresh or method not in _REPEATABLE or (body is not None and body.begun):
                    raise GatewayRefused(str(error)) from error
                continue  # it was closed while it was idle: nothing was lost
            except BaseException:
                response.close()
                raise
            if response.upgraded:
                response.close()
                raise GatewayRefused("the app upgraded unasked")
            _heed_gateway(response)
            return response

    async def upgrade(self, upstream: Upstream, path: bytes, headers: RawHeaders) -> Upgraded | Response:
        """Ask for a WebSocket with the browser's own handshake; return the open connection, or the app's refusal.

        Raises GatewayRefused, GatewaySilent and GatewayAnswered.
        """
        place = _place(upstream.base)
        connection = await self._connect(place, upstream.base)
        response = connection.ask(_head("GET", place, path, [*headers, *_UPGRADE], upstream.token), head_only=False)
        try:
            await response.head()
        except Silent as error:
            response.close()
            raise GatewaySilent(str(error)) from error
        except Broken as error:
            response.close()
            raise GatewayRefused(str(error)) from error
        except BaseException:
            response.close()
            raise
        if response.upgraded:
            return Upgraded(response.headers, connection.hand_over(), connection.rest)
        _heed_gateway(response)
        return response

    # --- connections -----------------------------------------------------------------------------------------------

    def _take(self, key: str) -> Connection | None:
        """An idle connection of that lease."""
        idle = self._idle.get(key)
        while idle:
            connection = idle.pop()
            if connection.reusable:
                return connection
        return None

    async def _connect(self, place: _Place, key: str) -> Connection:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, connection = await self._loop.create_connection(
                    lambda: Connection(self._loop, key, self._release),
                    place.host,
                    place.port,
                    ssl=_tls() if place.secure else None,
                )
        except TimeoutError as error:
            raise GatewaySilent("no connection in time") from error
        except OSError as error:
            raise GatewayRefused(str(error)) from error
        sock = connection.transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._open.add(connection)
        if self._looking is None:
            self._looking = self._loop.call_later(LOOK_SECONDS, self._look)
        return connection

    def _release(self, connection: Connection) -> None:
        if connection.reusable:
            self._idle[connection.key].append(connection)
        else:
            self._open.discard(connection)

    def _look(self) -> None:
        """Close what was idle for long enough, and what says nothing any more."""
        now = self._loop.time()
        for connection in list(self._open):
            still_for = now - connection.heard_at
            if connection.closed:
                self._open.discard(connection)
            elif connection.reusable:
                if still_for >= KEEP_SECONDS:
                    connection.abort()
            elif still_for >= IDLE_SECONDS:
                connection.fail(Silent("nothing moved for too long"))
        for key in [key for key, idle in self._idle.items() if not any(each.reusable for each in idle)]:
            del self._idle[key]
        self._looking = self._loop.call_later(min(LOOK_SECONDS, IDLE_SECONDS), self._look) if self._open else None


class _Place(NamedTuple):
    """Where a lease's requests go."""

    host: str
    port: int
    secure: bool
    path: bytes  # "/lease/<lease>": a raw path starting with a slash is appended, never joined


@lru_cache(maxsize=4096)
def _place(base: str) -> _Place:
    parts = urlsplit(base)
    secure = parts.scheme == "https"
    return _Place(parts.hostname or "", parts.port or (443 if secure else 80), secure, parts.path.encode("ascii"))


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


def _head(method: str, place: _Place, path: bytes, headers: RawHeaders, token: str, *, chunked: bool = False) -> bytes:
    """The request's head, byte for byte. Raises ValueError where a header holds a line break."""
    lines = [b"%b %b%b HTTP/1.1" % (method.encode("ascii"), place.path, path)]
    lines += [b"%b: %b" % header for header in headers]
    lines.append(b"%b: %b" % (RUNTIME_HEADER, token.encode("ascii")))
    if chunked:
        lines.append(b"transfer-encoding: chunked")
    whole = b"\r\n".join(lines)
    if whole.count(b"\n") != len(lines) - 1 or whole.count(b"\r") != len(lines) - 1:
        raise ValueError("A header holds a line break.")
    return whole + b"\r\n\r\n"


def _heed_gateway(response: Response) -> None:
    """Raise GatewayAnswered where the answer is the gateway's own."""
    for name, value in response.headers:
        if name == MADE_BY_GATEWAY:
            response.close()
            raise GatewayAnswered(value.decode("latin-1"))
