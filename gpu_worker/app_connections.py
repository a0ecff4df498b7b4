"""Connections to one lease's app: new ones, and idle ones for the next request.

Each lease has its own, so none is shared between leases, though two may get the same port one after the other.
"""

from __future__ import annotations

import asyncio

from gpu_worker.peer import NOBODY, Peer, Reader

CONNECT_SECONDS = 5.0
REUSE_SECONDS = 2.0  # apps close idle connections after 2 to 5 s; a used one must not be cut under our request


class NoAnswer(Exception):
    """The app gave no answer that can be passed on, and the client has seen none. *reason* is for its header."""

    reason: bytes


class AppUnreachable(NoAnswer):
    """Nothing accepts our connection."""

    reason = b"app-unreachable"


class AppBrokeOff(NoAnswer):
    """The app closed the connection, or answered something that is not HTTP."""

    reason = b"app-broke-off"


class AppHeadTooLarge(NoAnswer):
    """The app's answer has a head above our limit."""

    reason = b"app-head-too-large"


class AppConnections:
    """Made in any thread, used in one event loop."""

    def __init__(self, address: tuple[str, int], inbox: memoryview) -> None:
        self.address = address
        self._inbox = inbox
        self._idle: dict[Peer, float] = {}  # until when, the oldest first
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed = False

    async def connect(self) -> Peer:
        """A new connection, not heard by anybody yet. Raises AppUnreachable."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, peer = await loop.create_connection(lambda: Peer(NOBODY, self._inbox), *self.address)
        except (OSError, TimeoutError) as problem:
            raise AppUnreachable(str(problem)) from problem
        return peer

    def reuse(self) -> Peer | None:
        """The connection that was idle for the shortest time, not heard by anybody yet."""
        if not self._idle:
            return None
        peer, _ = self._idle.popitem()
        return peer

    def keep(self, peer: Peer) -> None:
        """*peer* has nothing under way: the next request may have it, for a while and while the app keeps still."""
        if self._closed:
            peer.close()
            return
        loop = asyncio.get_running_loop()
        peer.reader = _Idle(self._idle, peer)
        peer.resume()
        self._idle[peer] = loop.time() + REUSE_SECONDS
        if self._sweeper is None:
            self._sweeper = loop.call_later(REUSE_SECONDS, self._sweep)

    def close(self) -> None:
        """The app has ended, or we have."""
        self._closed = True
        for peer in list(self._idle):
            peer.close()
        self._idle.clear()
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweeper = None
        for peer, until in list(self._idle.items()):
            if until > loop.time():
                self._sweeper = loop.call_at(until, self._sweep)
                break
            del self._idle[peer]
            peer.close()


class _Idle(Reader):
    """An idle connection ends when the app closes it, or speaks unasked."""

    __slots__ = ("_among", "_peer")

    def __init__(self, among: dict[Peer, float], peer: Peer) -> None:
        self._among, self._peer = among, peer

    def received(self, data: bytes) -> None:
        self._end()

    def ended(self) -> None:
        self._end()

    def lost(self, problem: Exception | None) -> None:
        self._end()

    def _end(self) -> None:
        self._among.pop(self._peer, None)
        self._peer.close()
