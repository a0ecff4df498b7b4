"""Looks after a proxied HTTP request that takes longer than a moment: is the browser there, may it still be here?"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from runtime_proxy.upload import Receive, Upload

# Most answers are complete before: for them no task is made. Far below the second in which an upstream must learn it.
ROUND_SECONDS = 0.05
RECHECK_SECONDS = 60.0


class Watch:
    """Cancels the request's own task when it should end. Make it inside that task, and stop it at the end."""

    def __init__(
        self, rounds: Rounds, receive: Receive, upload: Upload | None, still_admitted: Callable[[], Awaitable[bool]]
    ) -> None:
        task = asyncio.current_task()
        assert task is not None, "a request is handled in a task"
        self.ended = False  # the request was cancelled here, not by the server
        self._task = task
        self._rounds = rounds
        self._receive = receive
        self._upload = upload
        self._still_admitted = still_admitted
        self._watcher: asyncio.Task[None] | None = None
        rounds.add(self)

    def begin(self) -> None:
        """Called by the rounds when the request has taken long enough to be looked after."""
        self._watcher = asyncio.create_task(self._look_after())

    def stop(self) -> None:
        self._rounds.discard(self)
        if self._watcher is not None:
            self._watcher.cancel()

    async def _look_after(self) -> None:
        leaving = asyncio.create_task(self._client_leaves())
        try:
            while not (await asyncio.wait({leaving}, timeout=RECHECK_SECONDS))[0]:
                if not await self._still_admitted():
                    break
            self.ended = True
            self._task.cancel()
        finally:
            leaving.cancel()

    async def _client_leaves(self) -> None:
        """Return when the browser has left. While a body is being read, its reader is the one who notices."""
        if self._upload is not None:
            await self._upload.finished.wait()
            if self._upload.client_gone:
                return
        while (await self._receive())["type"] != "http.disconnect":
            pass


class Rounds:
    """Begins the watches of requests that are still there after a round. One timer for all of them, none when idle."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._fresh: set[Watch] = set()
        self._due: set[Watch] = set()
        self._turning = False

    def add(self, watch: Watch) -> None:
        self._fresh.add(watch)
        if not self._turning:
            self._turning = True
            self._loop.call_later(ROUND_SECONDS, self._turn)

    def discard(self, watch: Watch) -> None:
        self._fresh.discard(watch)
        self._due.discard(watch)

    def _turn(self) -> None:
        for watch in self._due:
            watch.begin()
        self._due, self._fresh = self._fresh, set()
        self._turning = bool(self._due)
        if self._turning:
            self._loop.call_later(ROUND_SECONDS, self._turn)
