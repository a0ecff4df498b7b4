"""Why a job should end although its app has not: a stop, a lost lease, the machine's owner, a shutdown."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from gpu_worker.errors import JobInterrupted

DEFAULT_GRACE_SECONDS = 10.0

STOP = "stop"
LOST = "lost"  # the lease is not ours any more: nobody wants to hear of the job
HAND_BACK = "hand_back"  # the owner wants the machine now: the app is stopped, the job goes back to the line
SHUTDOWN = "shutdown"  # this process ends; a running app does not


@dataclass(frozen=True)
class Wish:
    kind: str
    reason: str | None = None
    grace_seconds: float = DEFAULT_GRACE_SECONDS


class Wishes:
    """The wish a job ends by. The first one counts; only a lost lease overrides another. Thread-safe.

    A shutdown is more than one of them: it is true beside whatever the job ends by. A stop that is under way goes on,
    but nobody waits in this process any more for what the next one can finish.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wish: Wish | None = None
        self._shutting_down = False
        self.made = threading.Event()
        """Set with the first wish; also what cancels a running step."""

    def make(self, wish: Wish) -> None:
        with self._lock:
            self._shutting_down |= wish.kind == SHUTDOWN
            if self._wish is None or (wish.kind == LOST and self._wish.kind != LOST):
                self._wish = wish
        self.made.set()

    @property
    def current(self) -> Wish | None:
        return self._wish

    @property
    def shutting_down(self) -> bool:
        """Whether this process ends, whatever the job ends by."""
        return self._shutting_down

    def is_for(self, *kinds: str) -> bool:
        return self._wish is not None and self._wish.kind in kinds

    def raise_if_made(self) -> None:
        if self.made.is_set():
            raise JobInterrupted
