"""HTTP/1.1 towards the gateways: one connection at a time per request, raw heads, strict parsing, bodies as they come.

Our own in place of a general client: next to untrusted apps it must share no connection between leases, take no lenient
spelling, tell a reset from an end, wait for no `100 Continue` for ever, hand an upgraded connection over, and cost less
than the server in front of it. The parsing is llhttp's (httptools), the same as that server's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import httptools

from runtime_proxy.headers import RawHeaders
from runtime_proxy.upload import ClientGone, Upload

READ_BUFFER = 256 * 1024  # bytes of an answer that wait for the browser; beyond, we stop reading
MAX_HEAD_BYTES = 128 * 1024  # of an answer; the gateways' own limit is below
JOINED_BYTES = 32 * 1024  # so many bytes in several pieces are passed on as one
COUNTED_BYTES = 64 * 1024  # a body at least so long is counted here, without a copy by the parser
GO_ON_SECONDS = 1.0  # for an app that does not know `Expect`: then the body is sent unasked (RFC 9110 §10.1.1)


class Broken(Exception):
    """The other side broke off, or what it said is not HTTP."""


class Silent(Broken):
    """Nothing moved for too long."""


class Response:
    """An answer as it comes. `status` and `headers` (names in lower case) are there once `head` has returned."""

    __slots__ = (
        "_complete",
        "_connection",
        "_error",
        "_pieces",
        "_sending",
        "_size",
        "_waiter",
        "goes_on",
        "headers",
        "status",
        "upgraded",
    )

    def __init__(self, connection: Connection) -> None:
        self.status = 0
        self.headers: RawHeaders = []
        self.upgraded = False
        self.goes_on: asyncio.Event | None = None  # set when the app wants the body, or has answered
        self._connection = connection
        self._sending: asyncio.Task[bool] | None = None
        self._pieces: list[bytes] = []
        self._size = 0
        self._complete = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def at_end(self) -> bool:
        """Whether everything was read."""
        return self._complete and not self._pieces

    async def head(self) -> None:
        """Return when status and headers are there. Raises Broken, and ClientGone where the upload ended so."""
        while not self.status:
            if self._error is not None:
                raise self._error
            await self._news()

    async def read(self) -> bytes:
        """Return what has come of the body, b"" at its end. Raises Broken where it broke off."""
        return b"".join(await self.read_pieces())

    async def read_pieces(self) -> list[bytes]:
        """Return what has come of the body, none at its end. Raises Broken where it broke off.

        Long pieces are as they came: to join them would cost as much as to receive them. Short ones are joined.
        """
        while not self._pieces:
            if self._complete:
                return []
            if self._error is not None:
                raise self._error
            await self._news()
        pieces = self._pieces
        self._pieces = []
        if self._size > READ_BUFFER:
            self._connection.resume()
        joined = len(pieces) > 1 and self._size <= JOINED_BYTES
        self._size = 0
        return [b"".join(pieces)] if joined else pieces

    def close(self) -> None:
        """End it: the connection is used again where both messages were complete, and cut otherwise."""
        sending, connection = self._sending, self._connection
        if sending is None:
            connection.end(reusable=self._complete)
            return
        sent = sending.done() and not sending.cancelled() and sending.exception() is None and sending.result()
        sending.cancel()
        connection.end(reusable=sent and self._complete)

    # --- told by the connection ------------------------------------------------------------------------------------

    def sends(self, sending: asyncio.Task[bool]) -> None:
        """The request's body is being sent by that task."""
        self._sending = sending
        sending.add_done_callback(self._sent)

    def take(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > READ_BUFFER:
            self._connection.pause()
        self.wake()

    def complete(self) -> None:
        self._complete = True
        self.wake()

    def fail(self, error: Exception) -> None:
        if self._error is None and not self._complete:
            self._error = error
            self.wake()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    @property
    def is_complete(self) -> bool:
        return self._complete

    async def _news(self) -> None:
        self._waiter = self._connection.loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _sent(self, sending: asyncio.Task[bool]) -> None:
        if sending.cancelled() or sending.exception() is None:
            return
        error = sending.exception()
        self.fail(error if isinstance(error, ClientGone | Broken) else Broken(str(error)))
        self._connection.abort()  # what was sent must not look like the whole


class Connection(asyncio.Protocol):
    """A connection to one lease's app. One request at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, key: str, released: Callable[[Connection], None]) -> None:
        self.loop = loop
        self.key = key  # whose it is
        self._released = released
        self.heard_at = loop.time()  # when something last moved, either way
        self.closed = False
        self.reusable = False  # set when it has come to rest between two requests
        self._parser = httptools.HttpResponseParser(self)
        self._answer: Response | None = None
        self._status_seen = False
        self._in_head = True
        self._head_bytes = 0
        self._headers: RawHeaders = []
        self._head_only = self._until_close = self._paused = self._keeps = False
        self._left = 0  # bytes of a long counted body that are still to come
        self._writable: asyncio.Future[None] | None = None
        self._blocked = False
        self.rest = b""  # what came after the head of an upgrade

    # --- for the pool and the response -----------------------------------------------------------------------------

    def ask(self, head: bytes, *, head_only: bool) -> Response:
        """Send a request's head; return the answer that will come."""
        answer = self._answer = Response(self)
        self.reusable = False
        self._head_only = head_only
        self._in_head, self._head_bytes, self._left = True, 0, 0
        self.heard_at = self.loop.time()
        if self.closed:
            answer.fail(Broken("the connection was closed"))
        else:
            self.transport.write(head)
        return answer

    async def send(self, upload: Upload) -> bool:
        """Send the request's body as it comes; return whether it was sent whole.

        Raises ClientGone where the browser leaves before its end.
        """
        answer = self._answer
        assert answer is not None
        if upload.expects_continue:
            answer.goes_on = asyncio.Event()
            if answer.status == 0:
                handle = self.loop.call_later(GO_ON_SECONDS, answer.goes_on.set)
                await answer.goes_on.wait()
                handle.cancel()
            if answer.status or self.closed:
                upload.refuse()  # it was answered before it asked for the body
                return False
        async for piece in upload:
            if self.closed:
                return False
            self.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece) if upload.chunked else piece)
            self.heard_at = self.loop.time()
            if self._blocked:
                self._writable = self.loop.create_future()
                await self._writable
                self.heard_at = self.loop.time()
        if self.closed:
            return False
        if upload.chunked:
            self.transport.write(b"0\r\n\r\n")
        return True

    def end(self, *, reusable: bool) -> None:
        """The answer is done with."""
        self._answer = None
        if reusable and self._keeps and not self.closed:
            self.reusable = True
            if self._head_only:
                self._parser = httptools.HttpResponseParser(self)  # the old one waits for the body of a HEAD
            self.resume()
        else:
            self.abort()
        self._released(self)

    def hand_over(self) -> asyncio.Transport:
        """Give an upgraded connection away, not reading."""
        self._answer = None
        self.closed = True
        self._released(self)
        return self.transport

    def fail(self, error: Exception) -> None:
        """Give up what is under way."""
        if self._answer is not None:
            self._answer.fail(error)
        self.abort()

    def abort(self) -> None:
        self.reusable = False
        if not self.closed:
            self.closed = True
            self.transport.abort()

    def pause(self) -> None:
        if not self._paused and not self.closed:
            self._paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        if self._paused and not self.closed:
            self._paused = False
            self.heard_at = self.loop.time()
            self.transport.resume_reading()

    # --- asyncio's -------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's has no common class with it

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None or answer.is_complete:
            self._keeps = False  # it came unasked: nobody may take it for an answer
            if self.reusable:
                self.abort()
            return
        self.heard_at = self.loop.time()
        if self._left:
            self._count(answer, data)
            return
        if self._in_head:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self.rest = data[upgrade.args[0] :]
            self.pause()
            return
        except httptools.HttpParserError as error:
            self.fail(Broken(f"not HTTP: {error}"))
            return
        if self._in_head and self._head_bytes > MAX_HEAD_BYTES:
            self.fail(Broken("a head above all limits"))

    def _count(self, answer: Response, data: bytes) -> None:
        """Take a piece of a body whose length is known: the parser would copy it, and has nothing to find in it."""
        self._left -= len(data)
        if self._left > 0:
            answer.take(data)
            return
        answer.take(data[: self._left] if self._left else data)
        self._keeps = self._keeps and self._left == 0  # more came: nobody asked for it
        self._left = 0
        self._parser = httptools.HttpResponseParser(self)  # the old one still waits for this body
        answer.complete()

    def eof_received(self) -> None:
        answer = self._answer
        if answer is not None and answer.status and self._until_close:
            answer.complete()

    def connection_lost(self, problem: Exception | None) -> None:
        self.closed = True
        self.reusable = False
        self._unblock()
        answer = self._answer
        if answer is not None:
            answer.fail(Broken(str(problem or "the connection was closed")))
            if answer.goes_on is not None:
                answer.goes_on.set()

    def pause_writing(self) -> None:
        self._blocked = True

    def resume_writing(self) -> None:
        self._blocked = False
        self._unblock()

    def _unblock(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    # --- the parser's ----------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        answer = self._answer
        if answer is None or answer.is_complete:
            self._keeps = False
        self._headers, self._in_head = [], True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # those after the last chunk end here
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        answer = self._answer
        assert answer is not None
        if status < 200 and status != 101:
            if status == 100 and answer.goes_on is not None:
                answer.goes_on.set()
            return
        if answer.is_complete:
            return
        self._in_head = False
        answer.headers = headers = self._headers
        self._until_close = not (self._head_only or status in (204, 304)) and not any(
            name in (b"content-length", b"transfer-encoding") for name, _ in headers
        )
        answer.upgraded = status == 101
        answer.status = status
        if answer.goes_on is not None:
            answer.goes_on.set()
        if self._head_only:
            # The parser would wait for the body that a HEAD's answer announces, or for the end.
            self._keeps = not any(name == b"connection" and b"close" in value.lower() for name, value in headers)
            answer.complete()
        else:
            length = next((int(value) for name, value in headers if name == b"content-length"), 0)
            if length >= COUNTED_BYTES and status not in (101, 204, 304):
                self._left = length
                self._keeps = self._parser.should_keep_alive()
            answer.wake()

    def on_body(self, body: bytes) -> None:
        answer = self._answer
        if answer is None or answer.is_complete:
            self._keeps = False
        else:
            self._left = max(0, self._left - len(body))
            answer.take(body)

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() < 200:
            return
        answer = self._answer
        if answer is None or answer.is_complete:
            return
        self._keeps = self._parser.should_keep_alive()
        answer.complete()
