"""An app that costs next to nothing: echoes WebSocket messages, swallows uploads, sends as many bytes as are asked for.

`GET …/bytes/N` sends N bytes, `POST` reads the body and answers with its length; a request that offers an upgrade
becomes an echo. Each path that holds `/slow/` is read, or written, with a pause at the beginning. Argument: the port.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import sys
from collections.abc import Callable
from typing import cast

import uvloop

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
BLOCK = b"\0" * 262_144
PAUSE_SECONDS = 2.0


class App(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self._buffer = b""
        self._take: Callable[[bytes], None] = self._head
        self._left = self._total = 0
        self._writable = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop has its own, of no common class
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        self._take(data)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, problem: Exception | None) -> None:
        self._writable.set()

    def _head(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head, self._buffer = self._buffer[:end], self._buffer[end + 4 :]
        slow = b"/slow/" in head.partition(b"\r\n")[0]
        key = re.search(rb"(?i)\nsec-websocket-key: *(\S+)", head)
        if key:
            accept = base64.b64encode(hashlib.sha1(key[1] + GUID).digest())
            lines = [b"HTTP/1.1 101 Switching Protocols", b"Upgrade: websocket", b"Connection: Upgrade"]
            self._transport.write(b"\r\n".join([*lines, b"Sec-WebSocket-Accept: " + accept, b"", b""]))
            self._take = self._frames
        elif length := re.search(rb"(?i)\ncontent-length: *(\d+)", head):
            self._left = self._total = int(length[1])
            self._take = self._body
            if slow:
                self._transport.pause_reading()
                asyncio.get_running_loop().call_later(PAUSE_SECONDS, self._transport.resume_reading)
        else:
            wanted = re.search(rb"/bytes/(\d+)", head)
            self._sending = asyncio.ensure_future(self._send(int(wanted[1]) if wanted else 2))
            return
        rest, self._buffer = self._buffer, b""
        self._take(rest)

    def _body(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left <= 0:
            text = b"%d" % self._total
            self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(text) + text)
            self._take = self._head

    async def _send(self, size: int) -> None:
        self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        while size > 0 and not self._transport.is_closing():
            piece = BLOCK if size >= len(BLOCK) else BLOCK[:size]
            self._transport.write(piece)
            size -= len(piece)
            await self._writable.wait()

    def _frames(self, data: bytes) -> None:
        """Send small masked frames back as they should be sent by a server; answer pings and closes likewise."""
        self._buffer += data
        buffer, at, out = self._buffer, 0, []
        while len(buffer) - at >= 6:
            size = buffer[at + 1] & 0x7F
            assert size < 126, "this echo is for small messages"
            end = at + 6 + size
            if len(buffer) < end:
                break
            mask = buffer[at + 2 : at + 6]
            payload = buffer[at + 6 : end]
            if mask != b"\0\0\0\0" and size:
                key = (mask * (size // 4 + 1))[:size]
                payload = (int.from_bytes(payload, "big") ^ int.from_bytes(key, "big")).to_bytes(size, "big")
            opcode = buffer[at] & 0x0F
            if opcode != 0xA:
                out.append(bytes((0x80 | (0xA if opcode == 0x9 else opcode), size)) + payload)
            at = end
        self._buffer = buffer[at:]
        if out:
            self._transport.write(b"".join(out))


async def serve(port: int) -> None:
    """Listen until somebody ends the process."""
    server = await asyncio.get_running_loop().create_server(App, "127.0.0.1", port, backlog=2048)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
