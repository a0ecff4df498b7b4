"""One request and its answer, as uvicorn has an ASGI application make them; with what it does not allow an app.

A status passes whatever it is. A client of HTTP/1.0 gets an answer without a length as it comes, ended by the end of
the connection. And an answer that its application left off breaks: where only the connection's end would say that it
is complete, by a reset.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HEADER_RE, HEADER_VALUE_RE, RequestResponseCycle

from runtime_proxy.status_lines import status_line

_BODILESS = (204, 304)
_RESET = struct.pack("ii", 1, 0)  # linger for no time


class Cycle(RequestResponseCycle):
    """Made by `server.Protocol` for each request."""

    _ends_with_connection = False

    async def run_asgi(self, app: Any) -> None:
        """Run the application. What it leaves off is broken off."""
        try:
            await app(self.scope, self.receive, self.send)
        except asyncio.CancelledError:
            self._break_off()  # the server stops, and this has taken too long
            raise
        except Exception as problem:
            self.logger.error("Exception in ASGI application\n", exc_info=problem)
            if not self.response_started:
                await self.send_500_response()
            else:
                self._break_off()
        else:
            if not self.response_started and not self.disconnected:
                self.logger.error("ASGI callable returned without starting response.")
                await self.send_500_response()
            elif not self.response_complete and not self.disconnected:
                self._break_off()
        finally:
            self.on_response = _nothing

    async def send(self, message: Any) -> None:
        """Send a head or a piece of a body. Waits while the client takes less than it is sent."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected or self.transport.is_closing():  # the latter a moment before we are told
            return
        expected = "http.response.body" if self.response_started else "http.response.start"
        if self.response_complete or message["type"] != expected:
            raise RuntimeError(f"Not the time for {message['type']}.")
        if self.response_started:
            self._send_piece(message.get("body", b""), last=not message.get("more_body", False))
        else:
            self._send_head(message["status"], [*self.default_headers, *message.get("headers", ())])

    def _send_head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.response_started = True
        self.waiting_for_100_continue = False
        lines = [status_line(status)]
        said_close = False
        for name, value in headers:
            if HEADER_RE.search(name) or HEADER_VALUE_RE.search(value):
                raise RuntimeError("A header that would break the answer's head.")
            if name == b"content-length" and self.chunked_encoding is None:
                self.expected_content_length = int(value)
                self.chunked_encoding = False
            elif name == b"connection" and b"close" in value.lower():
                self.keep_alive = False
                said_close = True
            lines.append(b"%b: %b\r\n" % (name, value))
        if self.chunked_encoding is None and self.scope["method"] != "HEAD" and status not in _BODILESS:
            if self.scope["http_version"] == "1.0":
                self._ends_with_connection = True
                self.keep_alive = False
            else:
                self.chunked_encoding = True
                lines.append(b"transfer-encoding: chunked\r\n")
        if not self.keep_alive and not said_close:
            lines.append(b"connection: close\r\n")
        lines.append(b"\r\n")
        self.transport.write(b"".join(lines))

    def _send_piece(self, piece: bytes, *, last: bool) -> None:
        if self.scope["method"] == "HEAD":
            self.expected_content_length = 0
        elif self.chunked_encoding:
            if piece and last:
                self.transport.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(piece), piece))
            elif piece:
                self.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            elif last:
                self.transport.write(b"0\r\n\r\n")
        elif piece:
            if not self._ends_with_connection:
                if len(piece) > self.expected_content_length:
                    raise RuntimeError("Response content longer than Content-Length")
                self.expected_content_length -= len(piece)
            self.transport.write(piece)
        if last:
            self._complete()

    def _complete(self) -> None:
        if self.expected_content_length != 0:
            raise RuntimeError("Response content shorter than Content-Length")
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()

    def _break_off(self) -> None:
        """End the connection so that the answer is not taken for a whole one."""
        sock = self.transport.get_extra_info("socket")
        if self._ends_with_connection and sock is not None:
            cast(socket.socket, sock).setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.transport.abort()
        else:
            self.transport.close()


def _nothing() -> None:
    pass
