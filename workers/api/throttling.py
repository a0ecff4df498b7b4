"""Token buckets per worker, in this process's memory: with n web processes a worker gets at most n times the rate.

That is enough for what they are for, a worker gone wild; enrollment, which strangers may call, is counted in the
database instead (`enrollment.count_attempt`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from django.conf import settings
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from workers.models import Worker

BUCKETS_KEPT = 10_000  # above this, full buckets (which remember nothing) are dropped


class Buckets:
    """Token buckets by key. `rate` is "calls per second/burst" and may change between calls."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._levels: dict[str, tuple[float, float]] = {}  # key: (tokens, when)

    def take(self, key: str, *, rate: str, count: float = 1) -> float:
        """Take tokens and return 0, or return the seconds until there are enough and take none."""
        per_second, burst = parse_rate(rate)
        now = self._clock()
        with self._lock:
            tokens, then = self._levels.get(key, (burst, now))
            tokens = min(burst, tokens + (now - then) * per_second)
            wait = 0.0 if tokens >= count else (count - tokens) / per_second
            self._levels[key] = (tokens if wait else tokens - count, now)
            if len(self._levels) > BUCKETS_KEPT:
                self._drop_full(now, per_second, burst)
        return wait

    def _drop_full(self, now: float, per_second: float, burst: float) -> None:
        self._levels = {
            key: (tokens, then)
            for key, (tokens, then) in self._levels.items()
            if tokens + (now - then) * per_second < burst
        }


def parse_rate(rate: str) -> tuple[float, float]:
    """Read "30/60": 30 calls per second, 60 at once. Raises ValueError."""
    per_second, _, burst = rate.partition("/")
    parsed = float(per_second), float(burst or per_second)
    if parsed[0] <= 0 or parsed[1] < 1:
        raise ValueError(f"{rate} is not a rate like 30/60.")
    return parsed


BUCKETS = Buckets()


class WorkerThrottle(BaseThrottle):
    """One bucket per worker for claims, events and reads."""

    bucket = "calls"

    def __init__(self) -> None:
        self._wait = 0.0

    def rate(self) -> str:
        return str(settings.OPENFACE_WORKER_RATE)

    def allow_request(self, request: Request, view: Any) -> bool:
        worker = request.auth
        if not isinstance(worker, Worker):
            return True
        self._wait = BUCKETS.take(f"{self.bucket}:{worker.pk}", rate=self.rate())
        return self._wait == 0.0

    def wait(self) -> float:
        return self._wait


class HeartbeatThrottle(WorkerThrottle):
    """A bucket of its own for heartbeats and renewals: a flood of logs must not make a worker look dead."""

    bucket = "heartbeats"

    def rate(self) -> str:
        return str(settings.OPENFACE_HEARTBEAT_RATE)
