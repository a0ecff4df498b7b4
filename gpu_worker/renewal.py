"""Is the lease still ours? Asked once in a job's life by itself, just before its app is created."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from gpu_worker.client import ControlPlane
from gpu_worker.errors import CallFailed, Final, LeaseStale, WireError
from gpu_worker.journal import JobFacts
from gpu_worker.protocol import Intervals
from gpu_worker.wishes import Wishes

logger = logging.getLogger(__name__)

RETRY_SECONDS = 2.0


class Renewal:
    """The newest renewal of one lease, by our own call or by a heartbeat's answer. Thread-safe."""

    def __init__(self, facts: JobFacts, client: ControlPlane) -> None:
        self._facts, self._client = facts, client
        self._changed = threading.Condition()
        self._asked_at = 0.0

    def note(self, asked_at: float) -> None:
        """A heartbeat that was sent at *asked_at* (monotonic) brought "keep"."""
        with self._changed:
            self._asked_at = max(self._asked_at, asked_at)
            self._changed.notify_all()

    def wait(self, wishes: Wishes, *, intervals: Callable[[], Intervals], on_final: Callable[[Final], None]) -> None:
        """Until the server has said, asked after now, that the lease is ours; as long as it takes.

        Raises LeaseStale when it is not, JobInterrupted when the job is to end.
        """
        since = time.monotonic()
        while True:
            wishes.raise_if_made()
            try:
                self._client.renew(job=self._facts.job, lease=self._facts.lease)
                return
            except LeaseStale:
                raise
            except Final as final:
                on_final(final)
            except (CallFailed, WireError) as problem:
                logger.info(
                    "lease not renewed yet",
                    extra={"action": "renewal_waits", "lease": self._facts.lease, "problem": str(problem)},
                )
            if self._renewed_within(since, min(RETRY_SECONDS, intervals().heartbeat_seconds)):
                return

    def _renewed_within(self, since: float, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._asked_at >= since, seconds)
