"""The app in the container: it says what a test says, and hears for it. Standard library only.

Whoever calls its port is connected to a test that waits at its other port, byte for byte, with pauses, half closes,
ends and resets. Where no test waits it answers by itself that it is there, as the worker asks before it lets anybody
in. A caller that says nothing is left alone: the worker looks now and then whether the port is open.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from contextlib import suppress
from typing import cast

TESTS_PORT = 7861
HERE, GO = b"+", b"!"  # told to a test: it is heard, and somebody has called
ALONE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
_RESET_AT_CLOSE = b"\x01\0\0\0\0\0\0\0"  # struct linger: on, 0 s


class End(asyncio.Protocol):
    """One end of a line. What comes goes to `other`, where that is known; it has to be before reading goes on."""

    def __init__(self) -> None:
        self.other: End | None = None
        self.is_over = False
        self._at_end = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def tie(self, other: End) -> None:
        """From now on both carry for each other."""
        self.other, other.other = other, self
        for end, far in ((self, other), (other, self)):
            if far.is_over:
                end.reset()
            else:
                end.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            self.other.transport.write(data)

    def eof_received(self) -> bool:
        self._at_end = True
        if self.other is None:
            return False
        if self.other._at_end:
            self.other.transport.close()
            return False
        self.other.transport.write_eof()
        return True

    def connection_lost(self, problem: Exception | None) -> None:
        self.is_over = True
        if self.other is None:
            return
        if problem is None:
            self.other.transport.close()
            return
        sock: socket.socket = self.transport.get_extra_info("socket")
        with suppress(OSError):  # what came before a reset; the loop leaves it where it cannot write
            while data := os.read(sock.fileno(), 65536):
                self.data_received(data)
        self.other.reset()

    def pause_writing(self) -> None:
        if self.other is not None and not self.other.is_over:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and not self.other.is_over:
            self.other.transport.resume_reading()

    def reset(self) -> None:
        """Break the line: the far side cannot take what it has for the whole."""
        if not self.is_over:
            sock: socket.socket = self.transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
            self.transport.abort()


class Exchange:
    """Brings callers and waiting tests together."""

    def __init__(self) -> None:
        self.tests: set[Test] = set()
        self.waiting: deque[Test] = deque()
        self.callers: deque[Caller] = deque()

    def look(self) -> None:
        while self.callers and (self.waiting or not self.tests):
            caller = self.callers.popleft()
            if caller.is_over:
                continue
            if not self.waiting:
                caller.transport.write(ALONE)
                caller.transport.close()
                continue
            test = self.waiting.popleft()
            test.transport.write(GO + caller.early)
            caller.tie(test)


class Caller(End):
    """Comes to the app's port."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__()
        self.early = b""
        self._exchange = exchange

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            super().data_received(data)
            return
        self.transport.pause_reading()
        self.early = data
        self._exchange.callers.append(self)
        self._exchange.look()


class Test(End):
    """Waits at the other port for a caller."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__()
        self._exchange = exchange

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._exchange.tests.add(self)
        self._exchange.waiting.append(self)
        self.transport.write(HERE)
        self._exchange.look()

    def connection_lost(self, problem: Exception | None) -> None:
        super().connection_lost(problem)
        self._exchange.tests.discard(self)
        if self in self._exchange.waiting:
            self._exchange.waiting.remove(self)
        self._exchange.look()


async def main() -> None:
    exchange = Exchange()
    loop = asyncio.get_running_loop()
    app = await loop.create_server(lambda: Caller(exchange), "0.0.0.0", int(os.environ["PORT"]))
    await loop.create_server(lambda: Test(exchange), "0.0.0.0", TESTS_PORT)
    await app.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
