"""Wait instead of exiting where an engine would start us again and again (`restart: unless-stopped`).

A revoked worker, and one whose credential another process uses, must not call the control plane any more. systemd
knows exit code 78 as "do not start again"; a container engine knows no such code.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from gpu_worker.stop_signals import StopSignals

CONTAINER_VARIABLE = "OPENFACE_WORKER_CONTAINER"  # set by our image
LOOK_SECONDS = 2.0


def engine_restarts_us() -> bool:
    return os.environ.get(CONTAINER_VARIABLE) == "1"


def wait_until(changed: Callable[[], bool]) -> None:
    """Return on SIGTERM or SIGINT, or when *changed* says that a new start makes sense."""
    done = threading.Event()
    signals = StopSignals(lambda number: done.set())
    while not changed() and not done.wait(LOOK_SECONDS):
        pass
    del signals  # until here it has to live: the interpreter knows only the number of its file
