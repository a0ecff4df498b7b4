"""A time limit that is set anew for each message of a connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Deadline:
    """Calls back when its time is over. Setting it anew costs next to nothing: its timer is moved when it fires."""

    __slots__ = ("_at", "_late", "_loop", "_timer")

    def __init__(self, late: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._late = late
        self._at: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def set(self, seconds: float) -> None:
        """Call back in so many *seconds*, unless it is set anew or cleared before."""
        self._at = self._loop.time() + seconds
        if self._timer is not None and self._timer.when() > self._at:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = self._loop.call_at(self._at, self._fire)

    def clear(self) -> None:
        """No time limit for now."""
        self._at = None

    def drop(self) -> None:
        """It is not needed any more."""
        self._at = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._timer = None
        if self._at is None:
            return
        if self._loop.time() < self._at:
            self._timer = self._loop.call_at(self._at, self._fire)
        else:
            self._at = None
            self._late()
