"""One TCP connection of the gateway: what arrives is told to a reader at once, what is written waits for nobody.

No bytes are kept here. Back-pressure is one word between two connections: while the one cannot take more, the one that
feeds it is not read.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from contextlib import suppress
from typing import cast

HIGH_WATER_BYTES = 256 * 1024
INBOX_BYTES = 256 * 1024
_RESET_AT_CLOSE = b"\x01\0\0\0\0\0\0\0"  # struct linger: on, 0 s

logger = logging.getLogger(__name__)


class Reader:
    """Hears what the other side of a connection says. The base class does not care."""

    __slots__ = ()

    def received(self, data: bytes) -> None:
        """The next bytes."""

    def ended(self) -> None:
        """Nothing more will come; the other side may still listen."""

    def lost(self, problem: Exception | None) -> None:
        """The connection is gone, in both directions, and not by our will. No call comes after this one."""


NOBODY = Reader()


class Peer(asyncio.BufferedProtocol):
    """The other side of one connection.

    What arrives lands in the *inbox* first, which all connections of one event loop share: for each a buffer of its own
    would have to be there before anybody knows how little comes.
    """

    __slots__ = ("_full", "_inbox", "_over", "_reading", "_transport", "at_end", "feeder", "reader")

    def __init__(self, reader: Reader, inbox: memoryview) -> None:
        self._inbox = inbox
        self.reader = reader
        self.feeder: Peer | None = None
        """Whose bytes are written here; not read while this connection is full."""
        self.at_end = False
        """The other side has closed its direction, or the connection."""
        self._transport: asyncio.Transport | None = None
        self._reading = True
        self._full = False
        self._over = False

    # -- the event loop's side ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop has its own, of no common class
        self._transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        sock: socket.socket = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a vanished host must not hold us for ever

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._inbox

    def buffer_updated(self, nbytes: int) -> None:
        try:
            self.reader.received(bytes(self._inbox[:nbytes]))
        except Exception:
            self._failed()

    def eof_received(self) -> bool:
        self.at_end = True
        try:
            self.reader.ended()
        except Exception:
            self._failed()
        return True  # we may still have something to say

    def connection_lost(self, problem: Exception | None) -> None:
        self.at_end = True
        if problem is not None and self._reading and self._transport is not None:
            self._hear_last_words(self._transport)
        self._transport = None  # its descriptor may be another connection's from now on
        reader = self.reader
        self._leave()
        reader.lost(problem)

    def pause_writing(self) -> None:
        self._full = True
        if self.feeder is not None:
            self.feeder.pause()

    def resume_writing(self) -> None:
        self._full = False
        if self.feeder is not None:
            self.feeder.resume()

    def _hear_last_words(self, transport: asyncio.Transport) -> None:
        """Read what came before a reset.

        The event loop gives up a connection when it cannot be written to, whatever there is to be read: an app that
        refuses an upload and closes would not be heard.
        """
        sock: socket.socket = transport.get_extra_info("socket")
        with suppress(OSError):  # nothing more
            while not self._over and (read := os.readv(sock.fileno(), [self._inbox])):
                self.buffer_updated(read)

    def _failed(self) -> None:
        # the outermost net of a connection: one odd message must not be silent, nor touch the others
        logger.exception("gateway failed", extra={"action": "gateway_failed"})
        reader = self.reader
        self.abort()
        reader.lost(None)

    # -- our side ----------------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Closed or broken, by us or by the other side."""
        return self._over

    @property
    def has_sent_all(self) -> bool:
        """Whether all that was written is in the system's hands."""
        return self._transport is None or self._transport.get_write_buffer_size() == 0

    def write(self, data: bytes) -> None:
        """Hand *data* on; nothing happens where the connection is over, which its reader is told or knows."""
        if not self._over and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def write_end(self) -> None:
        """We have nothing more to say."""
        if not self._over and self._transport is not None and not self._transport.is_closing():
            with suppress(OSError):  # it was reset a moment ago: the loop is about to tell
                self._transport.write_eof()

    def fed_by(self, feeder: Peer | None) -> None:
        """From now on *feeder* waits while we are full; who fed us before, if anybody, no longer does."""
        if self._full and self.feeder is not None:
            self.feeder.resume()
        self.feeder = feeder
        if self._full and feeder is not None:
            feeder.pause()

    def pause(self) -> None:
        """Read nothing for now."""
        if self._reading and not self._over and self._transport is not None:
            self._reading = False
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if not self._reading and not self._over and self._transport is not None:
            self._reading = True
            self._transport.resume_reading()

    def close(self) -> None:
        """Close after what was written is out. Its reader hears nothing more."""
        self._leave()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Break the connection: the other side cannot take what it has for complete. Its reader hears nothing more."""
        self._leave()
        if self._transport is not None:
            sock: socket.socket = self._transport.get_extra_info("socket")
            # a reset, not an orderly end: a reader until the end of the stream could not tell otherwise
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
            self._transport.abort()

    def _leave(self) -> None:
        self._over = True
        self.reader = NOBODY
        self.fed_by(None)
