"""The client side: connections to the workers' gateways, of each lease its own, and one for each WebSocket.

It knows addresses that `routing` made and nothing else, follows no redirect, keeps no cookie, decodes no body, and
sends a raw path as it is.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from urllib.parse import urlsplit

import aiohttp
from multidict import CIMultiDict
from websockets.asyncio.client import ClientConnection
from websockets.client import ClientProtocol
from websockets.datastructures import Headers
from websockets.exceptions import InvalidHandshake, InvalidMessage, InvalidStatus
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol
from websockets.uri import parse_uri
from yarl import URL

from runtime_proxy.client_http import RUNTIME_HEADER, LeaseRequest, as_text, insist
from runtime_proxy.headers import RawHeaders
from runtime_proxy.routing import Upstream
from runtime_proxy.upload import Upload

CONNECT_SECONDS = 5.0  # a worker on another continent answers in one; longer is a closed firewall
IDLE_SECONDS = 3600.0  # apps think for long; no limit on the whole
KEEP_SECONDS = 15.0  # idle connections: below the gateway's 75, so that we never send on one that it closes
READ_BUFFER = 64 * 1024  # bytes; twice as much is held per answer before its reading pauses
MAX_HEADER_BYTES = 64 * 1024

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
PING_SECONDS = 25.0  # below the 30 to 60 s after which routers and proxies drop a silent connection
# Only pongs that cannot be read for back-pressure take so long; a dead peer is found by `routing` long before.
PONG_SECONDS = IDLE_SECONDS
CLOSE_SECONDS = 5.0
QUEUED_FRAMES = 2  # a frame may be a whole message of 64 MiB

MADE_BY_GATEWAY = "X-OpenFace-Gateway"  # on the gateway's own answers; it removes the header from an app's
# What aiohttp would add of its own: the app must see what the browser sent.
_OURS_TO_SEND = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")


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


class HandshakeRefused(Exception):
    """The app answered a WebSocket handshake with something else."""

    def __init__(self, status: int, headers: RawHeaders, body: bytes) -> None:
        super().__init__(f"The handshake was answered with {status}.")
        self.status = status
        self.headers = headers
        self.body = body


insist()


class UpstreamPool:
    """Open while the process serves. For one event loop."""

    def __init__(self) -> None:
        self.session = _session(force_close=False)
        # After a refused `Expect: 100-continue` nobody knows whether the body still comes: that connection ends.
        self._single_use = _session(force_close=True)

    async def close(self) -> None:
        await self.session.close()
        await self._single_use.close()

    async def request(
        self, method: str, upstream: Upstream, path: bytes, headers: RawHeaders, body: Upload | None
    ) -> aiohttp.ClientResponse:
        """Send the request and return when the answer's head is there.

        Raises GatewayRefused, GatewaySilent and GatewayAnswered.

        A client that leaves while its body is being sent makes the upload raise: see `Upload.client_gone`.
        """
        session = self._single_use if body is not None and body.expects_continue else self.session
        fields = _fields(headers)
        fields.append((RUNTIME_HEADER, upstream.token))
        try:
            response = await session.request(
                method,
                URL(upstream.base + as_text(path), encoded=True),
                headers=CIMultiDict(fields),
                data=body,
                allow_redirects=False,
                middlewares=() if body is None else (body.never_twice,),
            )
        except (aiohttp.ServerTimeoutError, TimeoutError) as error:
            raise GatewaySilent(str(error)) from error
        except (aiohttp.ClientError, OSError) as error:
            raise GatewayRefused(str(error)) from error
        reason = response.headers.get(MADE_BY_GATEWAY)
        if reason is not None:
            response.close()
            raise GatewayAnswered(reason)
        return response

    async def websocket(
        self, upstream: Upstream, path: bytes, headers: RawHeaders, subprotocols: list[str]
    ) -> ClientConnection:
        """Open a WebSocket to the app.

        Raises GatewayRefused, GatewaySilent, GatewayAnswered, and HandshakeRefused for the app's own refusal.
        """
        gateway = urlsplit(upstream.base)
        secure = gateway.scheme == "https"
        fields = [*headers, (RUNTIME_HEADER.encode("ascii"), upstream.token.encode("ascii"))]
        target = gateway.path + path.decode("latin-1")

        def protocol() -> ClientConnection:
            return ClientConnection(
                _Handshake(target, fields, subprotocols),
                ping_interval=PING_SECONDS,
                ping_timeout=PONG_SECONDS,
                close_timeout=CLOSE_SECONDS,
                max_queue=QUEUED_FRAMES,
            )

        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                port = gateway.port or (443 if secure else 80)
                connection = await _connect(protocol, gateway.hostname or "", port, secure)
        except TimeoutError as error:
            raise GatewaySilent("no connection in time") from error
        except OSError as error:
            raise GatewayRefused(str(error)) from error
        try:
            async with asyncio.timeout(IDLE_SECONDS):  # as long as an answer may take
                await connection.handshake(user_agent_header=None)
        except InvalidStatus as refusal:
            connection.transport.abort()
            answer = refusal.response
            reason = answer.headers.get(MADE_BY_GATEWAY)
            if reason is not None:
                raise GatewayAnswered(reason) from None
            raise HandshakeRefused(answer.status_code, raw_headers(answer), bytes(answer.body or b"")) from None
        except TimeoutError as error:
            connection.transport.abort()
            raise GatewaySilent("no answer to the handshake in time") from error
        except (InvalidHandshake, InvalidMessage, EOFError, OSError) as error:
            connection.transport.abort()
            raise GatewayRefused(str(error)) from error
        except BaseException:
            connection.transport.abort()
            raise
        connection.start_keepalive()
        return connection


class _Handshake(ClientProtocol):
    """A client handshake with the browser's own headers and a raw target."""

    def __init__(self, target: str, headers: RawHeaders, subprotocols: list[str]) -> None:
        offered = [Subprotocol(name) for name in subprotocols] or None
        super().__init__(parse_uri("ws://gateway/"), subprotocols=offered, max_size=MAX_MESSAGE_BYTES)
        self._target = target
        self._fields = headers

    def connect(self) -> Request:
        request = super().connect()
        ours = Headers()
        for name, value in self._fields:
            ours.set_insecure(name.decode("ascii"), value.decode("latin-1"))
        for key, text in request.headers.raw_items():
            if key.lower() != "host":
                ours[key] = text
        return Request(self._target, ours)


def raw_headers(response: Response | None) -> RawHeaders:
    """Return the headers of a handshake's answer as bytes, names in lower case."""
    if response is None:
        return []
    return [(name.lower().encode("ascii"), value.encode("latin-1")) for name, value in response.headers.raw_items()]


async def _connect(protocol: Callable[[], ClientConnection], host: str, port: int, secure: bool) -> ClientConnection:
    tls = ssl.create_default_context() if secure else None
    _, connection = await asyncio.get_running_loop().create_connection(protocol, host, port, ssl=tls)
    return connection


def _session(*, force_close: bool) -> aiohttp.ClientSession:
    keep = {} if force_close else {"keepalive_timeout": KEEP_SECONDS}
    return aiohttp.ClientSession(
        request_class=LeaseRequest,
        connector=aiohttp.TCPConnector(limit=0, force_close=force_close, **keep),  # type: ignore[arg-type]  # one key
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=IDLE_SECONDS),
        auto_decompress=False,
        skip_auto_headers=_OURS_TO_SEND,
        read_bufsize=READ_BUFFER,
        max_line_size=MAX_HEADER_BYTES,
        max_field_size=MAX_HEADER_BYTES,
        trust_env=False,
    )


def _fields(headers: RawHeaders) -> list[tuple[str, str]]:
    return [(name.decode("ascii"), as_text(value)) for name, value in headers]
