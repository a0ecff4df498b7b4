"""HTTP as uvicorn speaks it, with what it leaves open closed: bounded heads that come in time, one Host, one framing.

Requests of one connection are read one at a time: what comes behind one that is being answered waits unread.

Given to uvicorn as `--http runtime_proxy.server:Protocol`. WebSockets are handed to browser_socket.py; answers are made
in cycle.py.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from runtime_proxy.browser_socket import BrowserSocket
from runtime_proxy.connections import CONNECTIONS, party_of
from runtime_proxy.cycle import Cycle
from runtime_proxy.proxies import is_trusted, reported_address
from runtime_proxy.request_heads import (
    FRAMING,
    MAX_FIELDS,
    MAX_HEAD_BYTES,
    has_body,
    length_of_body,
    origin_form,
    problem_of,
    problem_of_handshake,
    size_of,
)
from runtime_proxy.status_lines import status_line

# Behind a request that is being answered. Who sends more is cut off: were he not read, nobody would see him leave.
MAX_WAITING_BYTES = 256 * 1024
MOST_WAITING = 32  # requests, of those that came in one piece with the end of a chunked body and so were read already
HEAD_SECONDS = 20.0  # from the connection, or a head's first byte, to its end
# For a refused client that still sends: closing at once would take the answer away from it.
LINGER_SECONDS = 1.0
LINGER_BYTES = 1024 * 1024

_HEAD_END = b"\r\n\r\n"
WEBSOCKET_VERSION = b"sec-websocket-version: 13\r\n"  # with 426 (RFC 6455 §4.2.2)


class Refused(Exception):
    """The request is answered here, and the connection ends."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


class Protocol(HttpToolsProtocol):
    """One connection. Heads are bounded, and so is what stands between chunks and after them."""

    _left: int | None = None  # bytes to come of a counted body
    _unread = 0  # bytes since the parser last came to the end of a head, a piece of a body or a message
    _refusal: HTTPStatus | None = None
    _within_head = _within_body = False
    _body_follows = False  # what the parser takes for another protocol is the body of a request
    _head_timer: asyncio.TimerHandle | None = None
    _is_proxy = False  # a trusted one
    _counts_for: str | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's own says so
        super().connection_made(transport)
        self._unanswered: list[Cycle] = []  # the one that is being answered, and those that wait behind it
        self._waiting = bytearray()  # what came behind them, unread
        self._wait_for_head()
        if self.client is None:
            return  # a local socket: whoever may open it is trusted
        self._is_proxy = is_trusted(self.client[0])
        if not self._is_proxy and not self._count(self.client[0]):
            self._refuse(HTTPStatus.TOO_MANY_REQUESTS)
            transport.close()  # at once: those who linger would be too many too

    def connection_lost(self, exc: Exception | None) -> None:
        self._count(None)
        self._unset_keepalive_if_required()
        self._head_is_there()
        for cycle in self._unanswered:  # uvicorn would tell the last one only
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes, unless the client was refused: then nobody keeps them."""
        if self._refusal is not None:
            self._unread += len(data)
            if self._unread > LINGER_BYTES:
                self.transport.close()
            return
        self._unset_keepalive_if_required()
        if self._within_body:
            at_once = self._left is None or len(data) <= self._left
        else:
            at_once = not self._is_answering and data.find(_HEAD_END, 0, -1) < 0
        if at_once:  # the usual case: it is, or ends with, a part of one request
            self._feed(data)
            return
        self._waiting += data
        self._read_on()

    def _read_on(self) -> None:
        """Read what waits, up to the end of a request that has to be answered first."""
        waiting = self._waiting
        while waiting and not (self._is_answering or self._refusal is not None or self.transport.is_closing()):
            piece = bytes(waiting[: self._next_end()])
            del waiting[: len(piece)]
            self._feed(piece)
        if len(waiting) > MAX_WAITING_BYTES:
            self.transport.abort()

    def _next_end(self) -> int:
        """How far what waits can be read without the parser going on with the next request unasked."""
        if self._within_body and self._left is not None:
            return self._left
        end = self._waiting.find(_HEAD_END)  # of a head, or of a chunked body (or within it, which does no harm)
        return len(self._waiting) if end < 0 else end + len(_HEAD_END)

    @property
    def _is_answering(self) -> bool:
        """Whether a request is being answered of which everything has come."""
        return not self._within_body and self.cycle is not None and not self.cycle.response_complete

    def _feed(self, data: bytes) -> None:
        self._unread += len(data)
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self.send_400_response("")
            return
        except httptools.HttpParserUpgrade as upgrade:
            if self._should_upgrade():
                self._open_websocket(data[upgrade.args[0] :] + self._waiting)
                self._waiting.clear()
                return
        too_much = self._unread > MAX_HEAD_BYTES or len(self.headers or ()) > MAX_FIELDS
        if too_much and not self.transport.is_closing():
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        elif self._within_head or self.cycle is None or self.cycle.response_complete:
            if self._within_body:
                self._head_is_there()  # the rest of a body after its answer: it may take long, but not stand still
            self._wait_for_head()

    def on_message_begin(self) -> None:
        self._within_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._within_head, self._within_body = False, True
        self._head_is_there()
        self.headers = list(self.headers)  # where trailers go: the scope's own list decides, and is complete
        version = self.parser.get_http_version()
        if version == "1.0":
            self.expect_100_continue = False  # such a client knows no answer before the answer (RFC 9110 §10.1.1)
        self._judge(version)
        self._left = length_of_body(self.headers)
        self._unread = 0
        self.scope["method"] = self.parser.get_method().decode("ascii")
        if version != "1.1":
            self.scope["http_version"] = version
        path, mark, query = origin_form(self.url).partition(b"?")
        scope = cast(dict[str, Any], self.scope)
        scope["raw_path"], scope["query_string"], scope["bare_query"] = path, query, bool(mark) and not query
        text = path.decode("latin-1")
        scope["path"] = unquote(text) if "%" in text else text
        upgrades = self.parser.should_upgrade()
        if upgrades and self._should_upgrade():
            return
        self._body_follows = upgrades and has_body(self.headers)
        keep_alive = version == "1.1" and self.parser.should_keep_alive() and not upgrades
        self._begin(keep_alive=keep_alive)

    def on_body(self, body: bytes) -> None:
        self._unread = 0
        if self._left is not None:
            self._left -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._body_follows:
            return
        self._unread = 0
        self._within_body, self._left = False, None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._unanswered.pop(0)
        super().on_response_complete()
        if self._is_proxy and not self.pipeline:
            self._count(None)
        if self._within_head:
            self._wait_for_head()
        if self._waiting:
            self._unset_keepalive_if_required()
            self._read_on()

    def send_400_response(self, msg: str) -> None:
        """Called for what the parser, or one of our own rules, does not take."""
        self._refuse(self._refusal or HTTPStatus.BAD_REQUEST)

    def _parse(self, data: bytes) -> None:
        """Feed the parser. An upgrade that we do not speak is passed over, and the request's body read all the same."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if not self._body_follows:
                raise
            self._body_follows = False
            self.parser = httptools.HttpRequestParser(_Body(self))
            self.parser.feed_data(b"POST / HTTP/1.1\r\nConnection: close\r\n")
            self.parser.feed_data(b"".join(b"%b: %b\r\n" % field for field in self.headers if field[0] in FRAMING))
            self.parser.feed_data(b"\r\n" + data[upgrade.args[0] :])

    def _should_upgrade_to_ws(self) -> bool:
        return True

    def _judge(self, version: str) -> None:
        """Raise Refused for what no app shall have to make sense of."""
        problem = problem_of(self.headers, version)
        if problem is None and self.parser.should_upgrade() and self._should_upgrade():
            problem = problem_of_handshake(self.headers, self.parser.get_method(), version)
        # where more has come than one head may have: look how much is this one's
        if self._unread > MAX_HEAD_BYTES and size_of(self.url, self.headers) > MAX_HEAD_BYTES:
            problem = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        if problem is None and self._is_proxy and not self._count(reported_address(self.headers)):
            problem = HTTPStatus.TOO_MANY_REQUESTS
        if problem is not None:
            raise self._refused(problem)

    def _begin(self, *, keep_alive: bool) -> None:
        """Answer the request, now or when those before it are answered."""
        if len(self._unanswered) > MOST_WAITING:
            raise self._refused(HTTPStatus.TOO_MANY_REQUESTS)
        self.cycle = Cycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=keep_alive,
            on_response=self.on_response_complete,
        )
        self._unanswered.append(self.cycle)
        if len(self._unanswered) == 1:
            self._start_asgi_task(self.cycle, self.app)
        else:
            self.pipeline.appendleft((self.cycle, self.app))

    def _open_websocket(self, early: bytes) -> None:
        """Hand the connection over: from here on it is no HTTP."""
        self._head_is_there()
        self.connections.discard(self)
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.close()  # an earlier request is still being answered
            return
        offered = [value for name, value in self.headers if name == b"sec-websocket-protocol"]
        scope = cast(dict[str, Any], self.scope)
        scope["type"] = "websocket"
        scope["scheme"] = "wss" if self.scheme == "https" else "ws"
        scope["subprotocols"] = [name.strip().decode("latin-1") for value in offered for name in value.split(b",")]
        gone = partial(CONNECTIONS.give, self._counts_for) if self._counts_for is not None else None
        self._counts_for = None
        BrowserSocket(self.app, scope, self.transport, self.server_state, gone).start(early)

    def _count(self, address: str | None) -> bool:
        """Let this connection count for that address from now on, and for no other; whether it may have one more."""
        if self._counts_for is not None:
            CONNECTIONS.give(self._counts_for)
            self._counts_for = None
        if address is None:
            return True
        party = party_of(address)
        if not CONNECTIONS.take(party):
            return False
        self._counts_for = party
        return True

    def _wait_for_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._head_is_late)

    def _head_is_there(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if self.cycle is not None and not self.cycle.response_complete:
            return  # the head after the one that is being answered has time until then
        if self._within_head:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)
        else:
            self.transport.close()

    def _refused(self, status: HTTPStatus) -> Refused:
        """Note what to answer: the parser turns every exception into its own."""
        self._refusal = status
        return Refused(status)

    def _refuse(self, status: HTTPStatus) -> None:
        self._refusal = status
        if self.headers:
            self.headers.clear()
        self._waiting.clear()
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.close()  # an earlier request is being answered: nothing may be put in between
            return
        body = status.phrase.encode("ascii")
        more = WEBSOCKET_VERSION if status == HTTPStatus.UPGRADE_REQUIRED else b""
        head = b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\nconnection: close\r\n" % len(body)
        self.transport.write(status_line(status) + head + more + b"\r\n" + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(LINGER_SECONDS, self.transport.close)


class _Body:
    """Hears of the body only. The head of a request that asks for an upgrade which we do not speak was heard."""

    def __init__(self, protocol: Protocol) -> None:
        self.on_body = protocol.on_body
        self.on_message_complete = protocol.on_message_complete


def is_worth_a_line(record: logging.LogRecord) -> bool:
    """Whether uvicorn says what we do not."""
    return record.msg != "Invalid HTTP request received."


logging.getLogger("uvicorn.error").addFilter(is_worth_a_line)
