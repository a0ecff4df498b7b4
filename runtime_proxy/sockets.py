"""A WebSocket under way: the frames of two connections pass to each other, and each ends as the other did.

Nothing is kept: a side that cannot be written to is a side whose other one is not read. Pings are answered here, on
each hop, and ours keep both lines open; they and closes go in between frames only.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress

from runtime_proxy.close_codes import APP_BROKE, BAD_GATEWAY, GOING_AWAY, for_app, for_browser
from runtime_proxy.frames import PING, PONG, FrameReader, close_frame, control_frame

PING_SECONDS = 25.0  # below the 30 to 60 s after which routers and proxies drop a silent connection
MOST_UNANSWERED = 3
CLOSE_SECONDS = 5.0  # for the answer to a close, and then for the end of the connection
# A machine that vanished without a word is found by the kernel: after a minute of silence, 4 questions, 15 s apart.
_KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}

Farewell = tuple[int, str]  # close code and reason


class Leg(asyncio.Protocol):
    """One side's connection: what it sends goes to the other leg."""

    other: Leg

    def __init__(self, relay: Relay, transport: asyncio.Transport, *, is_app: bool) -> None:
        self.transport = transport
        self.reader = FrameReader(masked=not is_app)
        self.said_close = False  # we to this side: nothing may follow
        self.done = False  # this side said its last: it closed, broke off, or broke the protocol
        self.lost = False
        self.is_full = False  # what waits to be sent to this side is above the high-water mark
        self._relay = relay
        self._masks = is_app  # towards an app we are a client
        self._write: Callable[[bytes], None] = transport.write  # to the *other* side, once `join` has set it
        self._pong: bytes | None = None
        self._heard = True
        self._pinged = False
        self._unanswered = 0

    def join(self, other: Leg) -> None:
        self.other = other
        self._write = other.transport.write

    # -- what this side sends ----------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._heard = True
        passing = self.reader.feed(data)
        if passing:
            self._write(passing)
            if self.other._pong is not None:
                self.other.answer_ping()
        if self.reader.news:
            self.reader.news = False
            self._relay.heed(self)

    def hush(self) -> None:
        """What this side still sends goes nowhere: the other has been told its end. Its own end must still be seen."""
        self._write = _nowhere
        if not self.lost:
            self.transport.resume_reading()

    def eof_received(self) -> None:
        """Nothing more comes. The connection closes itself, when what waits for this side has been sent."""
        self._relay.break_off(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self._relay.lose(self)

    # -- what is sent to this side -----------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """Stop reading the side that this one cannot follow."""
        self.is_full = True
        if not (self.said_close or self.other.lost):
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        self.is_full = False
        if not self.other.lost:
            self.other.transport.resume_reading()
        self.answer_ping()

    def pinged(self, payload: bytes) -> None:
        """Owe this side an answer, to its last ping only: whoever does not read cannot make us keep more."""
        self._pong = payload
        self.answer_ping()

    def answer_ping(self) -> None:
        if self._pong is not None and self._may_speak() and not self.is_full:
            self.transport.write(control_frame(PONG, self._pong, masked=self._masks))
            self._pong = None

    def ping(self) -> None:
        """Keep the line open, where nothing waits to be sent anyway."""
        self._pinged = self._may_speak() and self.transport.get_write_buffer_size() == 0
        if self._pinged:
            self._heard = False
            self.transport.write(control_frame(PING, masked=self._masks))

    def is_deaf(self) -> bool:
        """Whether several pings in a row brought nothing. Ask before each ping.

        What we did not read, or could not send, does not count: neither a slow line nor the other side's slowness is
        this side's silence.
        """
        counts = self._pinged and not self._heard and not self.other.is_full
        self._unanswered = self._unanswered + 1 if counts else 0
        return self._unanswered >= MOST_UNANSWERED

    def say_close(self, farewell: Farewell) -> None:
        """Tell this side that it is over. Within a frame nothing can be said: then the connection just ends."""
        if self.said_close or self.lost:
            return
        may_speak = self._may_speak()
        self.said_close = True
        self.other.hush()
        if may_speak:
            self.transport.write(close_frame(*farewell, masked=self._masks))
        else:
            self.transport.close()

    def end(self) -> None:
        """End our direction, and read on until the other's end: closing with something unread loses what we said."""
        if self.lost or self.transport.is_closing():
            return
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()

    def _may_speak(self) -> bool:
        return not (self.said_close or self.lost) and self.other.reader.between_frames


class Relay:
    """Both legs. `ended` is done when both connections are gone."""

    def __init__(self, browser: asyncio.Transport, app: asyncio.Transport) -> None:
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._browser = Leg(self, browser, is_app=False)
        self._app = Leg(self, app, is_app=True)
        self._browser.join(self._app)
        self._app.join(self._browser)
        self._closing: asyncio.TimerHandle | None = None
        self._unsent = 0  # bytes, when that timer was set
        self._pinging = self._loop.call_later(PING_SECONDS, self._ping)

    def start(self, *, from_browser: bytes, from_app: bytes) -> None:
        """Take the connections over, with what has come on them already."""
        for leg in (self._browser, self._app):
            keep_alive(leg.transport)
            leg.transport.set_protocol(leg)
        for leg, early in ((self._browser, from_browser), (self._app, from_app)):
            if leg.transport.is_closing():
                leg.connection_lost(None)  # its former protocol was told
            elif early:
                leg.data_received(early)
        for leg in (self._browser, self._app):
            if not (leg.lost or leg.other.is_full):
                leg.transport.resume_reading()

    def close(self, *, browser: Farewell, app: Farewell = (GOING_AWAY, "")) -> None:
        """End it ourselves, and tell both sides."""
        self._browser.say_close(browser)
        self._app.say_close(app)
        self._settle()

    def abort(self) -> None:
        """End both connections now."""
        for leg in (self._browser, self._app):
            if not leg.lost:
                leg.transport.abort()

    # -- called by the legs ------------------------------------------------------------------------------------

    def heed(self, leg: Leg) -> None:
        """Do what a side's control frames ask for."""
        reader = leg.reader
        if reader.ping is not None:
            leg.pinged(reader.ping)
            reader.ping = None
        if reader.violation is not None:
            farewell = (reader.violation.code, str(reader.violation))
            leg.say_close(farewell)
            self._finish(leg, farewell if leg is self._app else (GOING_AWAY, ""))
        elif reader.close is not None:
            translate = for_browser if leg is self._app else for_app
            self._finish(leg, (translate(reader.close.code), reader.close.reason))

    def break_off(self, leg: Leg) -> None:
        """A side says no more, after its close or without."""
        self._finish(leg, (BAD_GATEWAY, APP_BROKE) if leg is self._app else (GOING_AWAY, ""))

    def lose(self, leg: Leg) -> None:
        """A connection has gone."""
        self.break_off(leg)
        if self._browser.lost and self._app.lost:
            self._pinging.cancel()
            if self._closing is not None:
                self._closing.cancel()
            if not self.ended.done():
                self.ended.set_result(None)

    def _finish(self, leg: Leg, farewell: Farewell) -> None:
        """This side has said its last; the other is told."""
        if not leg.done:
            leg.done = True
            leg.other.say_close(farewell)
        self._settle()

    def _settle(self) -> None:
        if self._closing is None:
            self._unsent = self._count_unsent()
            self._closing = self._loop.call_later(CLOSE_SECONDS, self._waited_enough)
        for leg in (self._browser, self._app):
            if leg.done and leg.said_close:
                leg.end()

    def _waited_enough(self) -> None:
        """The side that was told its end has not answered. While it still takes what was sent before, it may."""
        unsent = self._count_unsent()
        if 0 < unsent < self._unsent:
            self._unsent = unsent
            self._closing = self._loop.call_later(CLOSE_SECONDS, self._waited_enough)
            return
        for leg in (self._browser, self._app):
            if not leg.said_close and leg.reader.close is not None:
                leg.say_close((leg.reader.close.code or GOING_AWAY, ""))
            leg.end()
        self._closing = self._loop.call_later(CLOSE_SECONDS, self.abort)

    def _count_unsent(self) -> int:
        return sum(leg.transport.get_write_buffer_size() for leg in (self._browser, self._app) if not leg.lost)

    def _ping(self) -> None:
        self._pinging = self._loop.call_later(PING_SECONDS, self._ping)
        if self._browser.is_deaf():
            self._browser.transport.abort()
            return
        # An app that computes for minutes answers no ping. That its machine is gone is found elsewhere: by the kernel,
        # and by its worker's silence.
        self._browser.ping()
        self._app.ping()


def keep_alive(transport: asyncio.Transport) -> None:
    """Let the kernel find out when the machine at the other end has vanished."""
    sock = transport.get_extra_info("socket")
    if sock is None:
        return
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _nowhere(_: bytes) -> None:
    pass
