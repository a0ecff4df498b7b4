"""Watch, while an app runs, whether its container still sees its GPU. How that is told from inside: gpu_sight.py.

Asked in a thread of its own: an engine or a driver that hangs makes the answer late, never a stop.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from gpu_worker.errors import EngineError
from gpu_worker.gpu_sight import Sight, judge

logger = logging.getLogger(__name__)

Ask = Callable[[], tuple[int | None, bytes]]
"""The exit code and the output of the question inside the container; may wait. Raises EngineError."""


class GpuWatch:
    def __init__(self, ask: Ask, *, every_seconds: float) -> None:
        """*every_seconds*: how long between two looks; 0: never look."""
        self._ask, self._every = ask, every_seconds
        self._due = time.monotonic() + every_seconds
        self._thread: threading.Thread | None = None
        self._lost = 0

    @property
    def lost(self) -> bool:
        """Whether the GPU is gone in there: two looks running said so, for one may have met a busy driver."""
        return self._lost >= 2

    def look(self) -> None:
        """Ask again if it is time to. Does not wait; `lost` changes when the answer is here."""
        if not self._every or time.monotonic() < self._due or (self._thread and self._thread.is_alive()):
            return
        self._due = time.monotonic() + self._every
        self._thread = threading.Thread(target=self._take, name="gpu-watch", daemon=True)
        self._thread.start()

    def _take(self) -> None:
        try:
            sight = judge(*self._ask())
        except EngineError as problem:
            logger.debug("gpu not looked for", extra={"action": "gpu_watch", "problem": str(problem)})
            return
        if sight is Sight.UNKNOWN:
            self._due = float("inf")  # this image will never tell
        elif sight is Sight.SEEN:
            self._lost = 0
        else:
            self._lost += 1
            self._due = time.monotonic() + self._every / 10  # be sure soon
