"""Small real apps: raw TCP servers that see every byte, and answer or break as the test says."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

DEADLINE = 20.0  # seconds; a guard against hanging


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Awaitable[Any]) -> Any:
        async def wrapped() -> Any:
            return await work

        return asyncio.run_coroutine_threadsafe(wrapped(), self.loop).result(DEADLINE)

    def close(self) -> None:
        async def end() -> None:
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self.run(end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(DEADLINE)
        self.loop.close()


@dataclass
class Asked:
    """One request as it arrived."""

    line: bytes
    headers: list[tuple[bytes, bytes]]
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def target(self) -> bytes:
        return self.line.split(b" ")[1]

    def all(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.headers if key.lower() == name]

    def one(self, name: bytes) -> bytes | None:
        values = self.all(name)
        assert len(values) <= 1, f"{name!r} came {len(values)} times"
        return values[0] if values else None

    async def body(self) -> bytes:
        """Read the whole body, chunked or counted."""
        if self.one(b"transfer-encoding") == b"chunked":
            pieces: list[bytes] = []
            while True:
                line = await self.reader.readline()
                if not line:
                    raise asyncio.IncompleteReadError(b"".join(pieces), None)
                size = int(line, 16)
                piece = await self.reader.readexactly(size)
                await self.reader.readline()
                if not size:
                    return b"".join(pieces)
                pieces.append(piece)
        return await self.reader.readexactly(int(self.one(b"content-length") or 0))

    async def answer(self, raw: bytes) -> None:
        self.writer.write(raw)
        await self.writer.drain()

    async def ok(self, body: bytes = b"ok", *headers: bytes) -> None:
        lines = [b"HTTP/1.1 200 OK", b"Content-Length: %d" % len(body), *headers]
        await self.answer(b"\r\n".join(lines) + b"\r\n\r\n" + body)


Handler = Callable[[Asked], Awaitable[None]]


def three_events(read_by_client: threading.Semaphore) -> Handler:
    """An app that sends three events, the next one when the client has read the one before."""

    async def send(asked: Asked) -> None:
        await asked.answer(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for number in range(3):
            await asked.answer(b"9\r\ndata: %d\n\n\r\n" % number)
            assert await asyncio.to_thread(read_by_client.acquire, timeout=10)
        await asked.answer(b"0\r\n\r\n")

    return send


@dataclass
class Upstream:
    """Answers every request with `handler`, and remembers how it was asked. One connection may carry several."""

    handler: Handler = lambda asked: asked.ok()
    seen: list[Asked] = field(default_factory=list)
    port: int = 0
    open_connections: int = 0
    failures: list[BaseException] = field(default_factory=list)

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._server.close()

    def keep_bodies(self, answer: bytes = b"ok") -> list[bytes]:
        """Answer so from now on. Returns the bodies that came, a list that grows."""
        bodies: list[bytes] = []

        async def keep(asked: Asked) -> None:
            bodies.append(await asked.body())
            await asked.ok(answer)

        self.handler = keep
        return bodies

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open_connections += 1
        try:
            while line := await reader.readline():
                headers = []
                while (header := (await reader.readline()).rstrip(b"\r\n")) != b"":
                    name, _, value = header.partition(b":")
                    headers.append((name, value.strip()))
                asked = Asked(line.rstrip(b"\r\n"), headers, reader, writer)
                self.seen.append(asked)
                await self.handler(asked)
                if writer.is_closing():
                    return  # what it left unread is no request
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except Exception as error:  # shown by the fixture at the end
            self.failures.append(error)
        finally:
            self.open_connections -= 1
            writer.close()


@contextmanager
def answering() -> Iterator[Upstream]:
    """An app whose answers the test decides. Whatever went wrong in it fails the test at the end."""
    loop = Loop()
    server = Upstream()
    loop.run(server.start())
    yield server
    loop.run(server.stop())
    loop.close()
    assert not server.failures, server.failures
