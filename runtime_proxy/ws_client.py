"""Dials an app's WebSocket with a library that reads and writes whole messages, as the portal's server does."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection
from websockets.client import ClientProtocol
from websockets.datastructures import Headers
from websockets.exceptions import InvalidHandshake, InvalidMessage, InvalidStatus
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from runtime_proxy.headers import RawHeaders
from runtime_proxy.routing import Upstream
from runtime_proxy.sockets import CLOSE_SECONDS, PING_SECONDS
from runtime_proxy.upstream import (
    CONNECT_SECONDS,
    IDLE_SECONDS,
    MADE_BY_GATEWAY,
    RUNTIME_HEADER,
    GatewayAnswered,
    GatewayRefused,
    GatewaySilent,
)

# Only pongs that cannot be read for back-pressure take so long; a dead peer is found by `routing` long before.
PONG_SECONDS = IDLE_SECONDS
QUEUED_FRAMES = 2  # a frame may be a whole message
MAX_MESSAGE_BYTES = 4 * 1024 * 1024  # messages are held whole here, in the control plane's own process


class HandshakeRefused(Exception):
    """The app answered a WebSocket handshake with something else."""

    def __init__(self, status: int, headers: RawHeaders, body: bytes) -> None:
        super().__init__(f"The handshake was answered with {status}.")
        self.status = status
        self.headers = headers
        self.body = body


async def dial(upstream: Upstream, path: bytes, headers: RawHeaders, subprotocols: list[str]) -> ClientConnection:
    """Open a WebSocket to the app. It closes with 1009 at a message of the app beyond `MAX_MESSAGE_BYTES`.

    Raises GatewayRefused, GatewaySilent, GatewayAnswered, and HandshakeRefused for the app's own refusal.
    """
    gateway = urlsplit(upstream.base)
    secure = gateway.scheme == "https"
    fields = [*headers, (RUNTIME_HEADER, upstream.token.encode("ascii"))]
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
        reason = answer.headers.get(MADE_BY_GATEWAY.decode())
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
