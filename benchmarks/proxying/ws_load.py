"""Send small messages over WebSockets and wait for each echo. One JSON object at the end.

Argument: JSON {"port", "path", "connections", "seconds"}. With 0 seconds the connections are opened, "open" is printed,
and they stay until standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import cast

import uvloop

MESSAGE = b"m" * 64
FRAME = bytes((0x81, 0x80 | len(MESSAGE))) + b"\0\0\0\0" + MESSAGE  # masked, by a mask that changes nothing
ECHO = bytes((0x81, len(MESSAGE))) + MESSAGE
PING = b"\x89"


class Talker(asyncio.Protocol):
    """One WebSocket."""

    def __init__(self, handshake: bytes, talk: Talk) -> None:
        self._handshake, self._talk = handshake, talk
        self._buffer = b""
        self._is_open = False
        loop = asyncio.get_running_loop()
        self.opened, self.closed = loop.create_future(), loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop has its own, of no common class
        self._transport.write(self._handshake)

    def speak(self) -> None:
        self._transport.write(FRAME)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._is_open:
            self._read_answer()
            return
        while self._buffer[:1] == PING and len(self._buffer) >= 2 + self._buffer[1]:
            size = self._buffer[1]
            payload, self._buffer = self._buffer[2 : 2 + size], self._buffer[2 + size :]
            self._transport.write(bytes((0x8A, 0x80 | size)) + b"\0\0\0\0" + payload)
        if len(self._buffer) < len(ECHO):
            return
        if self._buffer != ECHO:
            raise SystemExit(f"not the echo: {self._buffer[:100]!r}")
        self._buffer = b""
        self._talk.messages += 1
        if time.perf_counter() < self._talk.until:
            self._transport.write(FRAME)
        else:
            self._transport.close()

    def _read_answer(self) -> None:
        if b"\r\n\r\n" not in self._buffer:
            return
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 101 "):
            raise SystemExit(f"no WebSocket: {head[:300]!r}")
        self._is_open = True
        self.opened.set_result(None)

    def connection_lost(self, problem: Exception | None) -> None:
        if not self.opened.done():
            raise SystemExit(f"the handshake was broken off: {problem}")
        if time.perf_counter() < self._talk.until:
            raise SystemExit(f"the WebSocket was closed: {problem}")
        if not self.closed.done():
            self.closed.set_result(None)


class Talk:
    """What all connections together have done."""

    def __init__(self) -> None:
        self.until = 0.0
        self.messages = 0


async def load(port: int, path: str, connections: int, seconds: float) -> dict[str, float]:
    """Talk for so long; return what came."""
    lines = [f"GET {path} HTTP/1.1", f"Host: localhost:{port}", "Connection: Upgrade", "Upgrade: websocket"]
    lines += ["Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==", "", ""]
    handshake = "\r\n".join(lines).encode()
    talk, loop = Talk(), asyncio.get_running_loop()
    talkers = []
    for _ in range(connections):
        _, talker = await loop.create_connection(lambda: Talker(handshake, talk), "127.0.0.1", port)
        talkers.append(talker)
    await asyncio.gather(*(talker.opened for talker in talkers))
    began = time.perf_counter()
    if not seconds:
        talk.until = float("inf")
        print("open", flush=True)
        await loop.run_in_executor(None, sys.stdin.read)
        talk.until = 0.0
        return {}
    talk.until = began + seconds
    for talker in talkers:
        talker.speak()
    await asyncio.gather(*(talker.closed for talker in talkers))
    return {"messages": talk.messages, "seconds": time.perf_counter() - began}


if __name__ == "__main__":
    print(json.dumps(uvloop.run(load(**json.loads(sys.argv[1])))))
