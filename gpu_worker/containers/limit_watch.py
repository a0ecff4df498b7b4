"""What happens to a running container at its limits, as sentences for its owner.

An app that lives on tells neither of these in its own words: the kernel killed one of its processes for memory, or it
could start no more of them. The engine knows both; nothing of the host's cgroups is needed, so a worker in a container
sees them as well.
"""

from __future__ import annotations

import time
from typing import Any

from gpu_worker.containers.connection import Connection, engine_errors

MIB = 1024 * 1024
NEARLY = 0.9  # of the processes it may have: what starts and ends all the time is seldom caught at the very limit


class LimitWatch:
    """One container's. Raises EngineError."""

    def __init__(self, engine: Connection, container_id: str) -> None:
        self._engine, self._id = engine, container_id
        self._since = time.time()
        self._newest = 0
        self._untold = 0  # kills that were seen, and not told because the engine broke off then
        self._crowded = False

    def news(self) -> list[str]:
        """What is new since the last call."""
        with engine_errors():
            self._untold += self._kills()
            stats = self._stats()
        killed, self._untold = self._untold, 0
        sentences = []
        if killed:
            times = "" if killed == 1 else f" ({killed} times)"
            limit = int((stats.get("memory_stats") or {}).get("limit") or 0) // MIB
            sentences.append(
                f"Out of memory: a process of the app was killed at its limit of {limit} MiB{times}."
                if limit
                else f"Out of memory: a process of the app was killed at its limit{times}."
            )
        pids = stats.get("pids_stats") or {}
        crowded = bool(pids.get("limit")) and int(pids.get("current") or 0) >= NEARLY * int(pids["limit"])
        if crowded and not self._crowded:
            sentences.append(
                f"Too many processes: the app has {pids['current']} of at most {pids['limit']} processes and threads; "
                "beyond that it can start no more."
            )
        self._crowded = crowded
        return sentences

    def _kills(self) -> int:
        """How often the kernel killed one of its processes since the last look. *until* lies in the past, or the engine
        would wait for it."""
        since, self._since = self._since, time.time() - 1
        events = self._engine().api.events(
            since=int(since), until=int(self._since), decode=True, filters={"container": self._id, "event": "oom"}
        )
        moments = [int(event["timeNano"]) for event in events]
        fresh = [moment for moment in moments if moment > self._newest]
        self._newest = max([self._newest, *moments])
        return len(fresh)

    def _stats(self) -> dict[str, Any]:
        """One look; without `one_shot` the engine takes a second for two of them."""
        return dict(self._engine().api.stats(self._id, stream=False, one_shot=True))
