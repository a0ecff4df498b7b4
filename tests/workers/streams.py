"""Signal streams, driven as ASGI drives them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from tests.workers.conftest import WireWorker
from workers import signals

SECONDS = 10  # a guard against hanging


class Stream:
    """One open stream: what was sent, and the client's side of the connection."""

    def __init__(self, path: str, headers: dict[str, str], method: str = "GET") -> None:
        self.scope: Any = {
            "type": "http",
            "method": method,
            "path": path,
            "client": ("127.0.0.1", 40000),
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        }
        self.status = 0
        self.complete = False
        self._lines: asyncio.Queue[str] = asyncio.Queue()
        self._gone = asyncio.Event()
        self._asked = False

    async def receive(self) -> Any:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = dict(message["headers"])
        else:
            self.complete = not message["more_body"]
            if message["body"]:
                await self._lines.put(message["body"].decode())

    async def __aenter__(self) -> Stream:
        self.task = asyncio.create_task(signals.application(self.scope, self.receive, self.send))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._gone.set()
        with suppress(asyncio.CancelledError):
            await asyncio.wait_for(self.task, SECONDS)

    async def next(self) -> str:
        return await asyncio.wait_for(self._lines.get(), SECONDS)

    async def opened(self) -> None:
        assert (await self.next(), await self.next()) == (": open\n\n", "event: work\ndata: {}\n\n")

    async def ended(self) -> None:
        await asyncio.wait_for(self.task, SECONDS)


def stream_of(worker: WireWorker, **more: str) -> Stream:
    return Stream(f"/api/v1/workers/{worker.id}/signals", {"Authorization": f"Bearer {worker.credential}"} | more)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def guarded() -> None:
        await asyncio.wait_for(test(), 3 * SECONDS)

    asyncio.run(guarded())
