"""Looks after a proxied HTTP request that takes longer than a moment: is the browser there, may it still be here?"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from runtime_proxy.upload import Receive, Upload

# Most answers are complete before: for them no task is made. Far below the second in which an upstream must learn it.
FIRST_LOOK_SECONDS = 0.05
RECHECK_SECONDS = 60.0


class Watch:
    """Cancels the request's own task when it should end. Start it inside that task, and stop it at the end."""

    def __init__(
        self,
        receive: Receive,
        upload: Upload | None,
        still_admitted: Callable[[], Awaitable[bool]],
        *,
        recheck_seconds: float | None = None,
    ) -> None:
        task = asyncio.current_task()
        assert task is not None, "a request is handled in a task"
        self.ended = False  # the request was cancelled here, not by the server
        self._task = task
        self._receive = receive
        self._upload = upload
        self._still_admitted = still_admitted
        self._recheck_seconds = RECHECK_SECONDS if recheck_seconds is None else recheck_seconds
        self._watcher: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(FIRST_LOOK_SECONDS, self._begin)

    def stop(self) -> None:
        self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()

    def _begin(self) -> None:
        self._watcher = asyncio.create_task(self._look_after())

    async def _look_after(self) -> None:
        leaving = asyncio.create_task(self._client_leaves())
        try:
            while not (await asyncio.wait({leaving}, timeout=self._recheck_seconds))[0]:
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
