"""A request body on its way: from the browser to the gateway, a piece at a time, and never twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class ClientGone(Exception):
    """The browser left before its request was complete."""


class Upload:
    """The body as it is sent on: asking for the next piece is what lets the browser send it."""

    def __init__(self, receive: Receive, *, expects_continue: bool = False, chunked: bool = False) -> None:
        self.expects_continue = expects_continue
        self.chunked = chunked  # its length is not known beforehand
        self.finished = asyncio.Event()  # nothing more will be read from the browser here
        self.client_gone = False
        self.begun = False  # a piece was asked for: it cannot be had again
        self._receive = receive

    def refuse(self) -> None:
        """Read no more: the final answer came before the browser was told to go on."""
        if not self.begun:
            self.finished.set()

    def __aiter__(self) -> Upload:
        return self

    async def __anext__(self) -> bytes:
        while not self.finished.is_set():
            self.begun = True
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
