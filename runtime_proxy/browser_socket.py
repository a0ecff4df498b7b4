"""The browser's side of a WebSocket's handshake (RFC 6455 §4.2): checked here, answered by the ASGI application.

The application finds it in its scope: `scope["extensions"][EXTENSION]`. No message is ever decoded for it, so there are
none to receive or to send: it accepts or refuses, and then has the frames carried.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HEADER_RE, HEADER_VALUE_RE
from uvicorn.server import ServerState

from runtime_proxy.close_codes import SERVER_RESTARTS, SERVICE_RESTART
from runtime_proxy.headers import RawHeaders
from runtime_proxy.sockets import Relay
from runtime_proxy.status_lines import status_line

logger = logging.getLogger(__name__)

EXTENSION = "openface.websocket"
VERSION = b"13"
KEY_BYTES = 16
EARLY_BYTES = 64 * 1024  # a browser may not speak before the answer; what an eager one sends waits in the kernel
LINGER_SECONDS = 1.0  # for a refusal to be taken
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

Application = Callable[[Any, Any, Any], Awaitable[None]]


def handshake_problem(headers: RawHeaders) -> int | None:
    """Return the status that answers a wrong handshake: 400, or 426 for another version of the protocol."""
    keys = [value for name, value in headers if name == b"sec-websocket-key"]
    versions = [value.strip() for name, value in headers if name == b"sec-websocket-version"]
    if any(name == b"transfer-encoding" or (name == b"content-length" and value != b"0") for name, value in headers):
        return 400
    if versions != [VERSION]:
        return 426 if versions else 400
    return None if len(keys) == 1 and _is_key(keys[0]) else 400


def accept_key(key: bytes) -> bytes:
    """Return the Sec-WebSocket-Accept that answers a Sec-WebSocket-Key."""
    return base64.b64encode(hashlib.sha1(key.strip() + _GUID, usedforsecurity=False).digest())


def _is_key(key: bytes) -> bool:
    try:
        return len(base64.b64decode(key.strip(), validate=True)) == KEY_BYTES
    except binascii.Error:
        return False


class BrowserSocket(asyncio.Protocol):
    """One WebSocket, from its request on. Takes the connection over from the HTTP protocol."""

    def __init__(
        self,
        application: Application,
        scope: dict[str, Any],
        transport: asyncio.Transport,
        state: ServerState,
        gone: Callable[[], None] | None = None,
    ) -> None:
        """*gone* is called once, when the connection is over."""
        self.transport = transport
        self.headers: RawHeaders = scope["headers"]
        self._application = application
        self._scope = scope
        self._state = state
        self._gone = gone
        self._early = b""
        self._answered = False
        self._given_up = False  # the handshake was cancelled here, not by the server
        self._lost = False
        self._relay: Relay | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._task: asyncio.Task[None]

    def start(self, early: bytes) -> None:
        """Hand the handshake to the application. `early` came after the request's head."""
        self._scope["extensions"] = {EXTENSION: self}
        self._state.connections.add(self)  # type: ignore[arg-type]  # the server calls `shutdown`, no more
        self.transport.set_protocol(self)
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._state.tasks.add(self._task)
        self._task.add_done_callback(self._finished)
        self.data_received(early)

    # -- for the application -----------------------------------------------------------------------------------

    def accept(self, headers: RawHeaders, app: asyncio.Transport, early: bytes) -> Relay:
        """Answer 101, and let the frames pass between the browser and the app, from whom `early` came already.

        `headers` are those besides the protocol's own: the subprotocol, say.
        """
        key = next(value for name, value in self.headers if name == b"sec-websocket-key")
        fields = [(b"upgrade", b"websocket"), (b"connection", b"Upgrade"), (b"sec-websocket-accept", accept_key(key))]
        self._answer(101, [*fields, *headers])
        self._relay = Relay(self.transport, app)
        self._relay.start(from_browser=self._early, from_app=early)
        self._early = b""
        return self._relay

    def refuse(self, status: int, headers: RawHeaders, body: bytes) -> None:
        """Answer with something else than a WebSocket."""
        counted = [(name, value) for name, value in headers if name != b"content-length"]
        self._answer(status, [*counted, (b"content-length", b"%d" % len(body)), (b"connection", b"close")], body)
        self._end()

    async def refuse_as_read(self, status: int, headers: RawHeaders, read: Callable[[], Awaitable[bytes]]) -> None:
        """Answer with what `read` returns, piece by piece until nothing. Where it raises, the answer breaks."""
        counted = any(name == b"content-length" for name, _ in headers)
        coding = [] if counted else [(b"transfer-encoding", b"chunked")]
        try:
            self._answer(status, [*headers, *coding, (b"connection", b"close")])
            while piece := await read():
                self.transport.write(piece if counted else b"%x\r\n%b\r\n" % (len(piece), piece))
                await self._writable.wait()
        except BaseException:
            self.transport.abort()
            raise
        if not counted:
            self.transport.write(b"0\r\n\r\n")
        self._end()

    # -- for the server and the loop ---------------------------------------------------------------------------

    def shutdown(self) -> None:
        """Called when the server stops."""
        if self._relay is not None:
            self._relay.close(browser=(SERVICE_RESTART, SERVER_RESTARTS))
        elif not self._answered:
            self._give_up()
            self.refuse(503, [(b"retry-after", b"2")], b"")

    def data_received(self, data: bytes) -> None:
        if self._answered:
            return  # refused: nobody reads it
        self._early += data
        if len(self._early) > EARLY_BYTES:
            self.transport.pause_reading()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """The browser has left: before the answer, the handshake with the app ends too."""
        self._lost = True
        self._writable.set()
        self._give_up()
        self._forget_if_over()

    def _give_up(self) -> None:
        if not self._task.done():
            self._given_up = True
            self._task.cancel()

    async def _run(self) -> None:
        try:
            await self._application(self._scope, _no_messages, _no_messages)
        except asyncio.CancelledError:
            if not self._given_up:
                raise
        except Exception:
            # the outermost net of a connection: one odd handshake must not be silent, nor touch the others
            logger.exception("websocket failed", extra={"action": "websocket_failed"})
            self.transport.abort()

    def _answer(self, status: int, headers: RawHeaders, body: bytes = b"") -> None:
        for name, value in headers:
            if HEADER_RE.search(name) or HEADER_VALUE_RE.search(value):
                raise ValueError("A header that would break the answer's head.")
        self._answered = True
        lines = [b"%b: %b\r\n" % field for field in headers]
        self.transport.write(b"".join([status_line(status), *lines, b"\r\n", body]))

    def _end(self) -> None:
        """End our direction; the connection a moment later, so that what is unread does not take the answer away."""
        self.transport.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        asyncio.get_running_loop().call_later(LINGER_SECONDS, self.transport.close)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._state.tasks.discard(task)
        if not self._answered and not self.transport.is_closing():
            self.transport.abort()
        self._forget_if_over()

    def _forget_if_over(self) -> None:
        if self._task.done() and (self._lost or self._relay is not None):
            self._state.connections.discard(self)
            gone, self._gone = self._gone, None
            if gone is not None:
                gone()


async def _no_messages(*_: Any) -> Any:
    raise RuntimeError("WebSockets of the data plane are carried by frames: there are no messages.")
