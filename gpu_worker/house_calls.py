"""The doctor comes back now and then, so that what an operator reads of a machine is true of now.

In a thread of its own: a check may wait for an engine or a driver that hangs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from gpu_worker.config import WorkerConfig
from gpu_worker.doctor import examine
from gpu_worker.protocol import DoctorCheck

logger = logging.getLogger(__name__)


class HouseCalls:
    def __init__(self, config: WorkerConfig, *, tell: Callable[[list[DoctorCheck]], None]) -> None:
        """*tell* hears what was found, each time."""
        self._config, self._tell = config, tell

    def run(self, stop: threading.Event) -> None:
        """Look every `doctor_seconds` (0: never again) until *stop*."""
        every = self._config.doctor_seconds
        while every and not stop.wait(every):
            try:
                self._tell(examine(self._config))
            except Exception:
                # the outermost net of this loop: an odd machine must not end it
                logger.exception("doctor failed", extra={"action": "doctor_failed"})
