"""One build and its control group: bounded while it runs, ended when it does nothing but fill the group, and told why.

BuildKit only says that a step ended with some code; that memory or processes were short is seen in the group.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator

from gpu_worker.build_groups import BuildGroup, BuildLimits
from gpu_worker.errors import JobFailed

logger = logging.getLogger(__name__)

NEARLY = 0.95  # of the processes: what starts and ends all the time is seldom caught at the very limit
CROWDED_SECONDS = 20.0  # so long at the limit, and a build is not busy but stuck
_KILLED = re.compile(rb"exit code: 137|\bkilled\b|SIGKILL|signal 9\b|(?:status|code) -9\b", re.IGNORECASE)
_NO_PROCESS = re.compile(
    rb"can't fork|cannot fork|fork: (?:retry|Resource|Cannot)|unable to fork|fork failed|can't start new thread"
    rb"|pthread_create|vfork:|clone3?: Resource",
    re.IGNORECASE,
)


class Bounds:
    """The limits that are in force while builds of this worker run. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._builds = 0

    @contextlib.contextmanager
    def during(self, group: BuildGroup) -> Iterator[None]:
        """Put the limits in force. Those of a shared group are lifted after the last build that ran under them."""
        with self._lock:
            self._builds += 1
            self.renew(group)
        try:
            yield
        finally:
            with self._lock:
                self._builds -= 1
                if not self._builds:
                    self.lift(group)

    def renew(self, group: BuildGroup) -> None:
        """Have them in force: another worker of this machine may have lifted them. Of a shared group, those stay that
        somebody else has set."""
        if group.group is None or group.limits is None:
            return
        in_force = group.group.limits()
        if in_force == group.limits or (group.shared and in_force is not None):
            return
        try:
            group.group.make()
            group.group.bound(group.limits)
            if not group.shared:
                group.group.step_back()
        except OSError as problem:
            logger.warning("builds not bounded", extra={"action": "builds_unbounded", "problem": str(problem)})

    def lift(self, group: BuildGroup) -> None:
        """Leave a shared group as it was found; also after a worker that was killed while it built."""
        if group.shared and group.group is not None and group.group.limits() == group.limits:
            group.group.unbound()


class BuildWatch:
    """Of one build, from before its first step."""

    def __init__(self, group: BuildGroup, bounds: Bounds, say: Callable[[str], None]) -> None:
        self._group, self._bounds, self._say = group, bounds, say
        self._shortages = group.group.shortages() if group.group is not None else 0
        self._crowded_since: float | None = None
        self._crowded = 0

    def look(self) -> None:
        """Now and then while it runs. Raises JobFailed (``build_too_many_processes``)."""
        self._bounds.renew(self._group)
        limits = self._group.in_force()
        if limits is None or not limits.pids or self._group.group is None:
            return
        there = self._group.group.processes()
        if there < NEARLY * limits.pids:
            self._crowded_since = None
            return
        self._crowded = there
        if self._crowded_since is None:
            self._crowded_since = time.monotonic()
            self._say(f"Too many processes: {self._number(limits)}; it can start no more.")
        elif time.monotonic() - self._crowded_since > CROWDED_SECONDS:
            raise self._too_many(limits)

    def verdict(self, tail: bytes) -> JobFailed | None:
        """Why a build failed whose output ended with *tail*, where its group knows; None where it does not."""
        limits = self._group.in_force()
        if limits is None or self._group.group is None:
            return None
        if limits.memory_mib and self._group.group.shortages() > self._shortages and _KILLED.search(tail):
            return JobFailed(
                "build_out_of_memory",
                f"Out of memory in the build: a step was killed at the limit of {limits.memory_mib} MiB, which all "
                "builds of this worker have together.",
            )
        if limits.pids and (self._crowded or _NO_PROCESS.search(tail)):
            return self._too_many(limits)
        return None

    def _too_many(self, limits: BuildLimits) -> JobFailed:
        return JobFailed("build_too_many_processes", f"Too many processes in the build: {self._number(limits)}.")

    def _number(self, limits: BuildLimits) -> str:
        there = f"{self._crowded} of at most {limits.pids}" if self._crowded else f"more than {limits.pids}"
        return f"it has {there}, which all builds of this worker have together"
