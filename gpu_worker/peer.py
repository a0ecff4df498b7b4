"""One TCP connection as a buffer with back-pressure both ways, and a future that tells when the other side is gone."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

HIGH_WATER_BYTES = 256 * 1024
LONGEST_HEAD_BYTES = 64 * 1024
LINGER_SECONDS = 5.0


class PeerGone(Exception):
    """The connection broke."""


class HeadTooLong(PeerGone):
    """The other side sent a head above our limit."""


class Peer(asyncio.Protocol):
    def __init__(self, connected: Callable[[Peer], None] | None = None) -> None:
        self._connected = connected
        self._transport: asyncio.Transport | None = None
        self._wake: asyncio.Future[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._reading = True
        self._eof = False
        self._broken: Exception | None = None
        self.buffer = bytearray()
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the other side has closed or broken the connection."""

    # -- asyncio -----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        sock: socket.socket | None = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a vanished host must not hold us for ever
        if self._connected is not None:
            self._connected(self)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if self._reading and len(self.buffer) > HIGH_WATER_BYTES and self._transport is not None:
            self._transport.pause_reading()
            self._reading = False
        self._notify()

    def eof_received(self) -> bool:
        self._eof = True
        self._tell_gone()
        self._notify()
        return True  # we may still have something to say

    def connection_lost(self, problem: Exception | None) -> None:
        if not self._eof:
            self._broken = problem or ConnectionResetError("closed")
        elif problem is not None:
            self._broken = problem
        self._eof = True
        self._writable.set()
        self._tell_gone()
        self._notify()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # -- reading -----------------------------------------------------------------------------------------------

    @property
    def at_end(self) -> bool:
        return self._eof

    async def fill(self) -> bool:
        """Wait for more in the buffer than there is; False at a clean end. Raises PeerGone when it broke."""
        before = len(self.buffer)
        while len(self.buffer) == before:
            if self._broken is not None:
                raise PeerGone(str(self._broken))
            if self._eof:
                return False
            self._resume()
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        return True

    async def read_head(self) -> bytes | None:
        """One message head with its empty line; None at a clean end before its first byte.

        Raises HeadTooLong, and PeerGone where it broke off.
        """
        searched = 0
        while True:
            while self.buffer.startswith(b"\r\n"):
                del self.buffer[:2]  # RFC 9112 §2.2: an empty line before a request is ignored
            end = self.buffer.find(b"\r\n\r\n", searched)
            if 0 <= end <= LONGEST_HEAD_BYTES:
                head = bytes(self.buffer[: end + 4])
                del self.buffer[: end + 4]
                return head
            if len(self.buffer) > LONGEST_HEAD_BYTES:
                raise HeadTooLong(f"the head is longer than {LONGEST_HEAD_BYTES} bytes")
            searched = max(0, len(self.buffer) - 3)
            if not await self.fill():
                if self.buffer:
                    raise PeerGone("the head broke off")
                return None

    def take(self, size: int) -> bytes:
        data = bytes(memoryview(self.buffer)[:size])
        self.drop(size)
        return data

    def drop(self, size: int) -> None:
        del self.buffer[:size]
        if len(self.buffer) <= HIGH_WATER_BYTES:
            self._resume()

    # -- writing -----------------------------------------------------------------------------------------------

    async def write(self, data: bytes) -> None:
        """Hand *data* on; waits while the other side is slow. Raises PeerGone."""
        if self._transport is None or self._broken is not None or self._transport.is_closing():
            raise PeerGone(str(self._broken or "closed"))
        self._transport.write(data)
        if not self._writable.is_set():
            await self._writable.wait()

    def write_end(self) -> None:
        if self._transport is not None and not self._transport.is_closing() and self._transport.can_write_eof():
            self._transport.write_eof()

    def close(self) -> None:
        """Close after what was written is out."""
        if self._transport is not None:
            self._transport.close()

    async def linger(self) -> None:
        """Let the other side read our last words: a close with unread data in our socket would reset them away."""
        self.write_end()
        try:
            async with asyncio.timeout(LINGER_SECONDS):
                self.drop(len(self.buffer))
                while await self.fill():
                    self.drop(len(self.buffer))
        except (TimeoutError, PeerGone):
            pass

    def abort(self) -> None:
        """Break the connection, so that the other side cannot take what it has for complete."""
        if self._transport is not None:
            sock: socket.socket | None = self._transport.get_extra_info("socket")
            if sock is not None and sock.fileno() >= 0:
                # linger 0: a reset, not an orderly end; a reader until EOF could not tell otherwise
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            self._transport.abort()

    # -- inside ------------------------------------------------------------------------------------------------

    def _resume(self) -> None:
        if not self._reading and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
            self._reading = True

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _tell_gone(self) -> None:
        if not self.gone.done():
            self.gone.set_result(None)
