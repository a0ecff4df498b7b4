"""The heartbeat: a thread that does nothing else, so nothing can make it late.

A beat that fails is followed by the next one. Only three answers mean more: revoked and superseded end the worker
(``on_final``); an invalid credential slows it down and is said once.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable

from gpu_worker.errors import CallFailed, CredentialInvalid, Final, WireError
from gpu_worker.link import Link

logger = logging.getLogger(__name__)

SLOW_RETRY_SECONDS = 60.0
WEDGED_SECONDS = 60.0
WEDGED_BEATS = 4


class Heartbeat:
    def __init__(self, link: Link, on_final: Callable[[Final], None]) -> None:
        self._link, self._on_final = link, on_final
        self._now = threading.Event()
        self._turned_at = time.monotonic()
        self._trouble: str | None = None

    @property
    def trouble(self) -> str | None:
        """What the newest beat met instead of an answer; None when it was answered."""
        return self._trouble

    def beat_now(self) -> None:
        """Do not wait for the interval: something changed, or a signal says that the server wants something."""
        self._now.set()

    def wedged(self) -> bool:
        """Whether the loop has not turned for so long that only a restart of the process helps."""
        limit = max(WEDGED_SECONDS, WEDGED_BEATS * self._link.intervals.heartbeat_seconds)
        return time.monotonic() - self._turned_at > limit

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            pause = self._turn()
            self._turned_at = time.monotonic()
            self._wait(pause, stop)

    def _turn(self) -> float:
        """One beat; the seconds until the next."""
        interval = self._link.intervals.heartbeat_seconds
        try:
            self._link.beat()
        except Final as final:
            self._on_final(final)
        except CredentialInvalid as problem:
            self._say(str(problem))
            return max(interval, min(SLOW_RETRY_SECONDS, 4 * interval))
        except (CallFailed, WireError) as problem:
            self._say(str(problem))
            return interval * random.uniform(0.4, 0.7)  # sooner than usual: the first after an outage ends it
        except Exception:
            # the outermost net of this loop: a defect must not silence a worker with running jobs
            logger.exception("heartbeat failed", extra={"action": "heartbeat_failed"})
        else:
            self._say(None)
        return self._link.intervals.heartbeat_seconds * random.uniform(0.9, 1.0)

    def _wait(self, seconds: float, stop: threading.Event) -> None:
        deadline = time.monotonic() + seconds
        while not stop.is_set() and (left := deadline - time.monotonic()) > 0:
            self._turned_at = time.monotonic()
            if self._now.wait(min(left, 5.0)):
                break
        self._now.clear()

    def _say(self, trouble: str | None) -> None:
        """Log a change, not each repetition."""
        if trouble == self._trouble:
            return
        if trouble is None:
            logger.info("control plane answers again", extra={"action": "link_up"})
        else:
            logger.warning(
                "control plane does not answer; running apps go on", extra={"action": "link_down", "problem": trouble}
            )
        self._trouble = trouble
