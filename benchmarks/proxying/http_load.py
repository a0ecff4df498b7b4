"""Ask for the same thing again and again over a number of connections, and count. One JSON object at the end.

Argument: JSON {"port", "path", "connections", "seconds"}; the answer: {"answers", "mib", "seconds", "p50_ms"}.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from typing import cast

import uvloop

from benchmarks.measurement import percentile

LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")


class Caller(asyncio.BufferedProtocol):
    """One connection: the next request goes out when the answer is complete."""

    def __init__(self, request: bytes, tally: Tally) -> None:
        self._request, self._tally = request, tally
        self._space = bytearray(1 << 18)
        self._head = b""
        self._left = 0
        self._reads_head = True
        self._asked_at = 0.0
        self.closed = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop has its own, of no common class
        self._ask()

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._space

    def buffer_updated(self, nbytes: int) -> None:
        if not self._reads_head:
            self._body(nbytes)
            return
        self._head += self._space[:nbytes]
        end = self._head.find(b"\r\n\r\n")
        if end < 0:
            return
        length = LENGTH.search(self._head, 0, end + 2)
        if not self._head.startswith(b"HTTP/1.1 200 ") or not length:
            raise SystemExit(f"an answer that nobody wants: {self._head[:300]!r}")
        self._left = int(length[1])
        self._reads_head = False
        self._tally.bytes += self._left
        self._body(len(self._head) - end - 4)

    def _body(self, size: int) -> None:
        self._left -= size
        if self._left > 0:
            return
        tally, now = self._tally, time.perf_counter()
        tally.answers += 1
        tally.waits.append(now - self._asked_at)
        if now < tally.until:
            self._ask()
        else:
            self._transport.close()

    def _ask(self) -> None:
        self._head, self._reads_head = b"", True
        self._asked_at = time.perf_counter()
        self._transport.write(self._request)

    def connection_lost(self, problem: Exception | None) -> None:
        if time.perf_counter() < self._tally.until:
            raise SystemExit(f"the connection was closed: {problem}")
        if not self.closed.done():
            self.closed.set_result(None)


class Tally:
    """What all connections together have got."""

    def __init__(self, seconds: float) -> None:
        self.until = time.perf_counter() + seconds
        self.answers = self.bytes = 0
        self.waits: list[float] = []


async def load(port: int, path: str, connections: int, seconds: float) -> dict[str, float]:
    """Ask for so long; return what came."""
    request = f"GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\nAccept: */*\r\n\r\n".encode()
    began = time.perf_counter()
    tally = Tally(seconds)
    loop = asyncio.get_running_loop()
    callers = []
    for _ in range(connections):
        _, caller = await loop.create_connection(lambda: Caller(request, tally), "127.0.0.1", port)
        callers.append(caller)
    await asyncio.gather(*(caller.closed for caller in callers))
    return {
        "answers": tally.answers,
        "mib": tally.bytes / 1048576,
        "seconds": time.perf_counter() - began,
        "p50_ms": percentile(tally.waits, 0.5) * 1000,
    }


if __name__ == "__main__":
    print(json.dumps(uvloop.run(load(**json.loads(sys.argv[1])))))
