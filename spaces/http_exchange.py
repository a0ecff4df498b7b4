"""One HTTP request and its answer in a plain ASGI application: bounded body, short answers, large ones in pieces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Header = tuple[bytes, bytes]

STALL_SECONDS = 120.0  # a peer that takes or gives nothing for so long is gone


class Gone(Exception):
    """The client hung up."""


class Body:
    """The request's body, and after it the news that the client hung up: both come from the same `receive`."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._read = asyncio.Event()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes. Raises Gone, and TimeoutError where nothing comes for STALL_SECONDS."""
        while not self._read.is_set():
            async with asyncio.timeout(STALL_SECONDS):
                message = await self._receive()
            if message["type"] == "http.disconnect":
                raise Gone
            if not message.get("more_body", False):
                self._read.set()
            if message.get("body"):
                yield message["body"]

    async def until_gone(self) -> None:
        """Return when the client has hung up after its body."""
        await self._read.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass


async def while_wanted(body: Body, work: asyncio.Task[None]) -> None:
    """Wait for the work, and end it when the client hangs up: a server tells that only to who listens."""
    watch = asyncio.create_task(body.until_gone())
    try:
        await asyncio.wait([work, watch], return_when=asyncio.FIRST_COMPLETED)
    finally:
        watch.cancel()
        if not work.done():
            work.cancel()
        await asyncio.gather(work, watch, return_exceptions=True)
    if not work.cancelled():
        work.result()


async def send_chunk(send: Send, chunk: bytes, *, more: bool) -> None:
    """Send a piece of the answer. TimeoutError: the client takes nothing."""
    async with asyncio.timeout(STALL_SECONDS):
        await send({"type": "http.response.body", "body": chunk, "more_body": more})


async def say(
    send: Send, status: int, sentence: str, headers: list[Header] | None = None, *, kind: bytes = b"text/plain"
) -> None:
    """Answer with a short text."""
    body = f"{sentence}\n".encode()
    fixed = [(b"content-type", kind + b"; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send(head(status, [*fixed, *(headers or [])]))
    await send({"type": "http.response.body", "body": body})


def head(status: int, headers: list[Header]) -> Message:
    """The start of an answer that nobody may keep or take for something else."""
    fixed = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
    return {"type": "http.response.start", "status": status, "headers": [*headers, *fixed]}


def header(scope: Message, name: bytes) -> bytes:
    """Return the first request header of that name (lower case), or b""."""
    headers: Iterable[Header] = scope["headers"]
    return next((value for key, value in headers if key.lower() == name), b"")
