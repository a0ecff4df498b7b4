"""A request body on its way: from the browser to the gateway, a piece at a time, and never twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class ClientGone(Exception):
    """The browser left before its request was complete."""


class Upload:
    """The body as the client pool reads it: asking for the next piece is what lets the browser send it."""

    def __init__(self, receive: Receive, *, expects_continue: bool) -> None:
        self.expects_continue = expects_continue
        self.finished = asyncio.Event()  # nothing more will be read from the browser here
        self.client_gone = False
        self._receive = receive
        self._read_any = False
        self._refused = False
        self._sent_before = False

    def refuse(self) -> None:
        """Read no more: the final answer came before the browser was told to go on."""
        if not self._read_any:
            self._refused = True
            self.finished.set()

    async def never_twice(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Let the pool repeat the request on another connection only while nothing of the body is lost."""
        if self._sent_before and self._read_any:
            raise aiohttp.ClientConnectionError("The connection broke while the body was being sent.")
        self._sent_before = True
        return await handler(request)

    def __aiter__(self) -> Upload:
        return self

    async def __anext__(self) -> bytes:
        while not self.finished.is_set():
            self._read_any = True
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self.client_gone = True
                self.finished.set()
                raise ClientGone
            if not message.get("more_body", False):
                self.finished.set()
            body: bytes = message.get("body", b"")
            if body:
                return body
        raise StopAsyncIteration
