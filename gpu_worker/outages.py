"""How long a job waits for a control plane that does not answer, and with which pauses."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from gpu_worker.commands import Cancel
from gpu_worker.errors import JobInterrupted

# A control plane that restarts is no fault of the Space: how long to try again before the job fails by it.
OUTAGE_SECONDS = 600.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 10.0


class Patience:
    """What is left of it, for one thing that is asked of the control plane."""

    def __init__(self, output: Callable[[bytes], None], cancel: Cancel) -> None:
        self._output, self._cancel = output, cancel
        self._deadline = time.monotonic() + OUTAGE_SECONDS
        self._pause = FIRST_PAUSE_SECONDS

    def again(self) -> bool:
        """Say so in the build log and wait a while; False when there is no patience left. Raises JobInterrupted."""
        if time.monotonic() > self._deadline:
            return False
        self._output(b"The control plane does not answer; trying again.\n")
        _sleep(self._pause * random.uniform(0.8, 1.2), self._cancel)
        self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
        return True


def _sleep(seconds: float, cancel: Cancel) -> None:
    """Wait, or raise JobInterrupted as soon as the job is not wanted any more."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if cancel.is_set():
            raise JobInterrupted
        time.sleep(0.1)
