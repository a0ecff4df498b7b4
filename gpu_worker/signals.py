"""Listen to the control plane's signal stream. A signal is a hint: missing one costs a poll interval, nothing else."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable

from gpu_worker.client import ControlPlane
from gpu_worker.errors import CallFailed, Final

logger = logging.getLogger(__name__)

FIRST_BACKOFF_SECONDS = 0.5
LONGEST_BACKOFF_SECONDS = 30.0


class SignalListener:
    """*on_work* hears that a job may wait, *on_wish* that the server wants something done; neither may block."""

    def __init__(
        self,
        client: ControlPlane,
        *,
        on_work: Callable[[], None],
        on_wish: Callable[[], None],
        on_final: Callable[[Final], None],
    ) -> None:
        self._client, self._on_work, self._on_wish, self._on_final = client, on_work, on_wish, on_final

    def run(self, stop: threading.Event) -> None:
        backoff = FIRST_BACKOFF_SECONDS
        while not stop.is_set():
            try:
                for name in self._client.signals():
                    backoff = FIRST_BACKOFF_SECONDS
                    self._hear(name)
                    if stop.is_set():
                        return
            except Final as final:
                self._on_final(final)
            except CallFailed as problem:
                logger.debug("signal stream broke", extra={"action": "signals_broken", "problem": str(problem)})
            except Exception:
                # the outermost net of this loop
                logger.exception("signal stream failed", extra={"action": "signals_failed"})
            stop.wait(backoff * random.uniform(0.5, 1.0))
            backoff = min(backoff * 2, LONGEST_BACKOFF_SECONDS)

    def _hear(self, name: str) -> None:
        if name == "work":
            self._on_work()
        elif name in ("stop", "standing"):
            self._on_wish()
