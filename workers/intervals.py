"""The times that every worker lives by. They come from here with each register and heartbeat answer."""

from __future__ import annotations

from typing import TypedDict

from django.conf import settings


class Intervals(TypedDict):
    heartbeat_seconds: float
    lease_seconds: float
    stale_seconds: float
    poll_seconds: float


def intervals() -> Intervals:
    """Return the intervals in seconds. A worker is offline only after four missed beats, whatever was configured."""
    stale = settings.OPENFACE_GPU_WORKER_STALE_SECONDS
    return {
        "heartbeat_seconds": min(settings.OPENFACE_GPU_WORKER_HEARTBEAT_SECONDS, stale / 4),
        "lease_seconds": settings.OPENFACE_GPU_WORKER_LEASE_SECONDS,
        "stale_seconds": stale,
        "poll_seconds": settings.OPENFACE_GPU_WORKER_POLL_SECONDS,
    }
