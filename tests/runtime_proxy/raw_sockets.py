"""WebSockets byte for byte: an app that a test speaks for, and a browser of which it sees every frame."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from runtime_proxy.browser_socket import accept_key
from runtime_proxy.frames import CLOSE, control_frame
from tests.runtime_proxy.data_plane import DataPlane, until
from tests.runtime_proxy.upstreams import Loop

KEY = b"dGhlIHNhbXBsZSBub25jZQ=="
MASK = b"\x0a\x0b\x0c\x0d"
HANDSHAKE = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + KEY + b"\r\n"
)


def frame(opcode: int, payload: bytes = b"", *, masked: bool, fin: bool = True) -> bytes:
    """A frame as an endpoint writes it."""
    size, mask_bit = len(payload), 0x80 if masked else 0
    head = bytes((opcode | (0x80 if fin else 0),))
    if size < 126:
        head += bytes((mask_bit | size,))
    elif size < 65536:
        head += bytes((mask_bit | 126,)) + size.to_bytes(2, "big")
    else:
        head += bytes((mask_bit | 127,)) + size.to_bytes(8, "big")
    return head + (MASK + _masked(payload) if masked else payload)


def _masked(payload: bytes) -> bytes:
    """As `masked_with` makes it, fast for payloads of many MiB."""
    size = len(payload)
    keys = (MASK * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(keys, "big")).to_bytes(size, "big")


def closing(code: int | None, reason: bytes = b"", *, masked: bool) -> bytes:
    """A close frame, of any code."""
    return frame(CLOSE, b"" if code is None else code.to_bytes(2, "big") + reason, masked=masked)


class RawApp:
    """An app that accepts every WebSocket, as `accept` says; `got` is what comes then. One connection at a time."""

    def __init__(self, loop: Loop) -> None:
        self.accept: Callable[[bytes], bytes] = accepting
        self.heads: list[bytes] = []
        self.got = bytearray()
        self.received = 0  # bytes, of `got` and of what was not kept
        self.keeps = True
        self.is_open = False
        self.ended = False  # the other side says no more
        self.port = 0
        self.transports: set[asyncio.Transport] = set()
        self._loop = loop
        self._transport: asyncio.Transport | None = None

    async def start(self) -> None:
        self._server = await asyncio.get_running_loop().create_server(lambda: _AppConnection(self), "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._server.close()
        while self.transports:
            for transport in self.transports:
                transport.abort()
            await asyncio.sleep(0)

    def say(self, data: bytes) -> None:
        """Send these bytes."""
        self._call(lambda transport: transport.write(data))

    def vanish(self) -> None:
        """Break off."""
        self._call(lambda transport: transport.abort())

    def stop_reading(self) -> None:
        self._call(lambda transport: transport.pause_reading())

    def read_on(self) -> None:
        self._call(lambda transport: transport.resume_reading())

    def waits_to_send(self) -> int:
        """Bytes that do not get through."""
        assert self._transport is not None
        return self._transport.get_write_buffer_size()

    def _call(self, act: Callable[[asyncio.Transport], object]) -> None:
        until(lambda: self.is_open)
        transport = self._transport
        assert transport is not None

        async def now() -> None:
            act(transport)

        self._loop.run(now())

    def opened(self, transport: asyncio.Transport) -> None:
        self._transport, self.is_open, self.got, self.received = transport, True, bytearray(), 0


@pytest.fixture
def app() -> Iterator[RawApp]:
    """An app that a test speaks for."""
    loop = Loop()
    app = RawApp(loop)
    loop.run(app.start())
    yield app
    loop.run(app.stop())
    loop.close()


class _AppConnection(asyncio.Protocol):
    def __init__(self, app: RawApp) -> None:
        self._app = app
        self._head: bytes | None = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._app.transports.add(self._transport)

    def data_received(self, data: bytes) -> None:
        if self._head is None:
            self._take(data)
            return
        self._head += data
        head, end, rest = self._head.partition(b"\r\n\r\n")
        if end:
            self._head = None
            self._app.heads.append(head)
            self._transport.write(self._app.accept(head))
            self._app.opened(self._transport)
            self._take(rest)

    def _take(self, data: bytes) -> None:
        self._app.received += len(data)
        if self._app.keeps:
            self._app.got += data

    def eof_received(self) -> bool:
        self._app.ended = True
        return False

    def connection_lost(self, problem: Exception | None) -> None:
        self._app.transports.discard(self._transport)
        self._app.ended = True
        self._app.is_open = False


def accepting(head: bytes, *more: bytes) -> bytes:
    """The answer of an app that accepts; `more` are further lines."""
    key = re.search(rb"(?i)\r\nsec-websocket-key: *(\S+)", head)
    assert key is not None
    lines = [b"HTTP/1.1 101 Switching Protocols", b"Upgrade: websocket", b"Connection: Upgrade"]
    return b"\r\n".join([*lines, b"Sec-WebSocket-Accept: " + accept_key(key[1]), *more, b"", b""])


class RawBrowser:
    """A browser's WebSocket to alice/app, of which nothing is interpreted."""

    def __init__(
        self,
        data_plane: DataPlane,
        *more: bytes,
        path: bytes = b"/ws",
        host: str = "",
        handshake: bytes = HANDSHAKE,
        early: bytes = b"",
    ) -> None:
        self.socket = data_plane.connect()
        lines = [b"GET /run/alice/app" + path + b" HTTP/1.1", b"Host: " + (host or data_plane.host).encode(), *more]
        self.socket.sendall(b"\r\n".join([*lines, handshake + b"\r\n"]) + early)
        self.head = b""
        while b"\r\n\r\n" not in self.head:
            piece = self.socket.recv(65536)
            assert piece, f"no answer to the handshake: {self.head!r}"
            self.head += piece
        self.head, _, rest = self.head.partition(b"\r\n\r\n")
        self.got = bytearray(rest)

    @property
    def status(self) -> int:
        return int(self.head.split(b" ")[1])

    def field(self, name: bytes) -> list[bytes]:
        return re.findall(rb"(?im)^" + re.escape(name) + rb": *([^\r]*)", self.head)

    def say(self, data: bytes) -> None:
        self.socket.sendall(data)

    def hear(self, size: int) -> bytes:
        """The next bytes, exactly so many."""
        while len(self.got) < size:
            piece = self.socket.recv(262_144)
            assert piece, f"the connection ended after {self.got[:200]!r}"
            self.got += piece
        heard = bytes(self.got[:size])
        del self.got[:size]
        return heard

    def hear_all(self) -> bytes:
        """Everything until the connection ends."""
        try:
            while piece := self.socket.recv(262_144):
                self.got += piece
        except ConnectionResetError:
            pass
        heard = bytes(self.got)
        self.got.clear()
        return heard

    def close(self) -> None:
        self.socket.close()

    def vanish(self) -> None:
        """Go without a close frame."""
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def __enter__(self) -> RawBrowser:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def pong(payload: bytes = b"") -> bytes:
    """A browser's pong."""
    return control_frame(0xA, payload, masked=True)
