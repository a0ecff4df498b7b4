"""HTTP as uvicorn speaks it, with what it leaves open closed: bounded heads, one Host, and upgrades by GET only.

Given to uvicorn as `--http runtime_proxy.server:Protocol`.
"""

from __future__ import annotations

import logging
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

# The gateways' own limit is 64 KiB, and we tell the app some 2 KiB more than the browser did.
MAX_HEAD_BYTES = 60 * 1024
# For a refused client that still sends: closing at once would take the answer away from it.
LINGER_SECONDS = 1.0
LINGER_BYTES = 1024 * 1024


class Refused(Exception):
    """The request is answered here, and the connection ends."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


class Protocol(HttpToolsProtocol):
    """One connection. Heads are bounded, and so is what stands between chunks and after them."""

    _unread = 0  # bytes since the parser last came to the end of a head, a piece of a body or a message
    _refusal: HTTPStatus | None = None

    def data_received(self, data: bytes) -> None:
        """Take bytes, unless the client was refused: then nobody keeps them."""
        self._unread += len(data)
        if self._refusal is not None:
            if self._unread > LINGER_BYTES:
                self.transport.close()
            return
        super().data_received(data)
        if self._refusal is None and self._unread > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def on_headers_complete(self) -> None:
        self._unread = 0
        size, hosts = len(self.url), 0
        for name, value in self.headers:
            size += len(name) + len(value) + 4
            if name == b"host":
                hosts += 1
        if size > MAX_HEAD_BYTES:
            raise self._refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        version = self.parser.get_http_version()
        if hosts > 1 or (hosts == 0 and version == "1.1"):  # RFC 9112 §3.2
            raise self._refused(HTTPStatus.BAD_REQUEST)
        upgrades = self.parser.should_upgrade()
        if upgrades and self._get_upgrade() == b"websocket" and self.parser.get_method() != b"GET":  # RFC 6455 §4.1
            raise self._refused(HTTPStatus.BAD_REQUEST)
        super().on_headers_complete()
        if upgrades and not self._should_upgrade():
            self.cycle.keep_alive = False  # what follows an upgrade is dropped by our parent, read or not

    def on_body(self, body: bytes) -> None:
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unread = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Called by the parent for what the parser, or one of our own rules, does not take."""
        self._refuse(self._refusal or HTTPStatus.BAD_REQUEST)

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: any browser may offer h2c, and is answered without."""

    def _refused(self, status: HTTPStatus) -> Refused:
        """Note what to answer: the parser turns every exception into its own."""
        self._refusal = status
        return Refused(status)

    def _refuse(self, status: HTTPStatus) -> None:
        self._refusal = status
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.close()  # an earlier request is being answered: nothing may be put in between
            return
        body = status.phrase.encode("ascii")
        head = b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(LINGER_SECONDS, self.transport.close)


def is_worth_a_line(record: logging.LogRecord) -> bool:
    """Whether uvicorn says what we do not. An answer that ends early is our way to pass on that the app broke off."""
    return record.msg not in (
        "ASGI callable returned without completing response.",
        "Invalid HTTP request received.",
    )


logging.getLogger("uvicorn.error").addFilter(is_worth_a_line)
