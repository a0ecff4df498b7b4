"""daphne, with bounds on what it holds for a client that sends or takes more than the application can carry.

By itself it writes every request's body to a file before the application hears of it, whatever its length; it takes a
WebSocket's messages as fast as they come; and it promises to send whatever it is given. One client that uploads for
ever, or does not read, would fill the disk or the memory of the control plane. So here

- a body beyond the longest that any path takes is counted and not kept (`BodyLimit` then refuses it by its length),
- a WebSocket is not read while messages wait for the application,
- `send` of a WebSocket returns once the connection has taken what was sent,
- as many files may be open as the system allows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from io import BytesIO
from typing import Any

from daphne.http_protocol import WebRequest
from daphne.server import Server
from daphne.ws_protocol import WebSocketProtocol

from openface.body_limit import LARGEST
from runtime_proxy import open_files

WAITING_MESSAGES = 2  # a WebSocket is read again when fewer wait
_TAKEN = "openface.taken"


class BoundedServer(Server):  # type: ignore[misc]  # daphne ships no types
    """What `daphne` runs: `openface.asgi` puts it in the place of daphne's own."""

    def __init__(self, application: Any, *args: Any, ready_callable: Callable[[], None] | None = None, **options: Any):
        open_files.allow_most()
        super().__init__(_telling_what_was_taken(application), *args, ready_callable=self._bound, **options)
        self._ready = ready_callable

    def _bound(self) -> None:
        """daphne has made its factories and not begun to serve."""
        build = self.http_factory.buildProtocol

        def bounded(address: Any) -> Any:
            channel = build(address)
            channel.requestFactory = BoundedRequest
            return channel

        self.http_factory.buildProtocol = bounded
        self.ws_factory.protocol = BoundedWebSocket
        if self._ready is not None:
            self._ready()

    def create_application(self, protocol: Any, scope: dict[str, Any]) -> Any:
        if isinstance(protocol, BoundedWebSocket):
            scope[_TAKEN] = protocol.taken
        return super().create_application(protocol, scope)

    async def handle_reply(self, protocol: Any, message: dict[str, Any]) -> None:
        await super().handle_reply(protocol, message)
        if isinstance(protocol, BoundedWebSocket):
            await protocol.room.wait()


def _telling_what_was_taken(application: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """Tell a WebSocket's protocol of each message that the application received."""

    async def telling(scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Any) -> None:
        taken = scope.pop(_TAKEN, None)
        if taken is None:
            await application(scope, receive, send)
            return

        async def received() -> Any:
            message = await receive()
            taken()
            return message

        await application(scope, received, send)

    return telling


class BoundedRequest(WebRequest):  # type: ignore[misc]  # daphne ships no types
    """A request whose body is kept only where some path would take it."""

    content: Any
    _received = 0

    def gotLength(self, length: int | None) -> None:  # Twisted's name, as those below
        super().gotLength(0 if length is not None and length > LARGEST else length)

    def handleContentChunk(self, data: bytes) -> None:
        self._received += len(data)
        if self._received <= LARGEST:
            super().handleContentChunk(data)
        elif self.content.tell():
            self.content.close()
            self.content = BytesIO()

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        if self._received > LARGEST:
            # Also a body that came in chunks: `BodyLimit` goes by it.
            self.requestHeaders.setRawHeaders(b"content-length", [b"%d" % self._received])
        super().requestReceived(command, path, version)


class BoundedWebSocket(WebSocketProtocol):  # type: ignore[misc]  # daphne ships no types
    """A WebSocket that waits for the slower of its two ends."""

    def makeConnection(self, transport: Any) -> None:
        self.room = asyncio.Event()
        self.room.set()
        self._unread = False
        # The transport tells us, and no longer the request that was upgraded, when it holds too much.
        transport.unregisterProducer()
        transport.registerProducer(self, True)
        super().makeConnection(transport)

    # --- towards the client: the transport's wishes --------------------------------------------------------------

    def pauseProducing(self) -> None:
        self.room.clear()

    def resumeProducing(self) -> None:
        self.room.set()

    def stopProducing(self) -> None:
        self.room.set()

    def onClose(self, wasClean: bool, code: int | None, reason: str | None) -> None:
        self.room.set()
        super().onClose(wasClean, code, reason)

    # --- from the client -----------------------------------------------------------------------------------------

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        super().onMessage(payload, isBinary)
        if not self._unread and self.application_queue.qsize() >= WAITING_MESSAGES:
            self._unread = True
            self.transport.pauseProducing()

    def taken(self) -> None:
        """The application received a message."""
        if self._unread and self.application_queue.qsize() < WAITING_MESSAGES:
            self._unread = False
            self.transport.resumeProducing()

    def onAutoPingTimeout(self) -> None:
        """A pong that we do not read is not missing."""
        if self._unread:
            self.autoPingTimeoutCall = None
        else:
            super().onAutoPingTimeout()
