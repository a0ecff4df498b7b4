"""Apps that fill the disk: where little is left, the own app that took it is stopped, before the machine suffers.

The file system tells in no time how much is free, once a second. What an app has there takes long to find out, so that
is looked at seldom: once for each app, and again whenever the disk has lost as much as would be worth knowing whose
it is. Who is stopped has taken at least a quarter of what the disk lost since. Where that was somebody else, no app
is stopped. What apps keep is never removed.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from gpu_worker.config import WorkerConfig
from gpu_worker.containers import ContainerEngine
from gpu_worker.disk import GIB, MIB, RESERVE, DiskFloor, gib
from gpu_worker.errors import EngineError, JobFailed
from gpu_worker.executor import Executor
from gpu_worker.machine import Machine

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
SHARE_OF_FLOOR = 0.25  # below the floor no job is taken; below this share of it one has to go
WORTH_KNOWING = 512 * MIB
BLAME_SHARE = 0.25
LEAST_GROWTH = 16 * MIB
PAUSE_SECONDS = 30.0  # after somebody was stopped, or nobody could be: what an app had open is freed only at its end
LIMIT_SECONDS = 60.0  # how often the limit of a single Space is looked at, where there is one


class Runner(Protocol):
    @property
    def lease(self) -> str: ...

    @property
    def has_app(self) -> bool:
        """Whether its app runs by now."""
        ...

    def condemn(self, failure: JobFailed) -> None:
        """Stop the app; its job fails by this."""
        ...


@dataclass
class _Baseline:
    """What was on the disk when it was last looked at."""

    free: float = 0.0
    leases: frozenset[str] = frozenset()
    """Of the apps that ran; some of them could perhaps not be measured."""
    sizes: dict[str, int] = field(default_factory=dict)


class DiskGuard:
    """The apps of one worker, on the disk where the engine keeps its data."""

    def __init__(
        self,
        floor: DiskFloor,
        root: Callable[[], Path | None],
        usage: Callable[[], Mapping[str, int]],
        runners: Callable[[], Sequence[Runner]],
        *,
        limit_gib: int | None = None,
    ) -> None:
        """*root*: where that is, None while nobody knows. *usage*: bytes by lease; slow, and raises EngineError.

        *limit_gib*: what a single Space may have there; None: whatever there is.
        """
        self._floor, self._root, self._usage, self._runners = floor, root, usage, runners
        self._limit = None if limit_gib is None else limit_gib * GIB
        self._baseline = _Baseline()
        self._paused_until = 0.0
        self._limits_due = 0.0

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(LOOK_SECONDS):
            try:
                self.look()
            except EngineError as problem:
                logger.info("apps not measured", extra={"action": "not_measured", "problem": str(problem)})
            except Exception:
                # the outermost net of this loop
                logger.exception("disk not watched", extra={"action": "disk_unwatched"})

    def look(self) -> None:
        """Stop who fills the disk, where it is so. Raises EngineError."""
        root = self._root()
        runners = {runner.lease: runner for runner in self._runners() if runner.has_app}
        free = None if root is None else _free(root)
        if root is None or free is None or not runners:
            return
        reserve = max(RESERVE, SHARE_OF_FLOOR * self._floor.of(root))
        now = time.monotonic()
        if free < reserve and now >= self._paused_until:
            self._paused_until = now + PAUSE_SECONDS
            self._stop_the_grower(root, runners, free, reserve)
        elif (
            runners.keys() - self._baseline.leases
            or free < self._baseline.free - WORTH_KNOWING
            or (self._limit is not None and now >= self._limits_due)
        ):
            self._measure(runners, free)
        self._baseline.free = max(self._baseline.free, free)  # room that was made is no loss

    def _measure(self, runners: Mapping[str, Runner], free: float) -> None:
        sizes = dict(self._usage())
        self._baseline = _Baseline(free, frozenset(runners), sizes)
        self._limits_due = time.monotonic() + LIMIT_SECONDS
        for lease, runner in runners.items():
            if self._limit is not None and sizes.get(lease, 0) > self._limit:
                has = f"It has {gib(sizes[lease])} in /data, /cache and its container"
                self._condemn(runner, f"{has}; a Space may have {gib(self._limit)} on this worker.", sizes[lease])

    def _stop_the_grower(self, root: Path, runners: Mapping[str, Runner], free: float, reserve: float) -> None:
        before, sizes = self._baseline, self._usage()
        grown = {one: sizes[one] - before.sizes[one] for one in runners if one in sizes and one in before.sizes}
        lease = max(grown, key=lambda one: grown[one], default=None)
        least = max(LEAST_GROWTH, BLAME_SHARE * (before.free - free))
        if lease is None or grown[lease] < least:
            logger.warning(
                "disk nearly full, and not by an app of ours",
                extra={"action": "disk_nearly_full", "free": gib(free), "root": str(root)},
            )
            return
        self._condemn(
            runners[lease],
            f"Only {gib(free)} of disk were left on the worker (it keeps {gib(reserve)}), and this app had just "
            f"written {gib(grown[lease])}. What it keeps in /data and /cache is still there: {gib(sizes[lease])} "
            "with what it wrote elsewhere.",
            grown[lease],
        )

    def _condemn(self, runner: Runner, sentence: str, size: int) -> None:
        logger.warning(
            "app stopped for the disk",
            extra={"action": "disk_limit", "lease": runner.lease, "bytes": size},
        )
        runner.condemn(JobFailed("disk_limit", sentence))


def guard_disk(
    executor: Executor,
    machine: Machine,
    runners: Callable[[], Sequence[Runner]],
    config: WorkerConfig,
    stop: threading.Event,
) -> None:
    """Watch the disk of this worker's containers until *stop*; plain processes are not watched."""
    if not isinstance(executor, ContainerEngine):
        return

    def root() -> Path | None:
        picture = machine.newest
        if picture is None or picture.engine.root is None:
            return None
        place = Path(picture.engine.root)
        return place if place.exists() else config.data_dir  # from a container: a volume, so on the same disk

    floor = DiskFloor(config.disk_floor_mib)
    DiskGuard(floor, root, executor.disk_usage, runners, limit_gib=config.max_space_data_gib).run(stop)


def _free(path: Path) -> float | None:
    try:
        stats = os.statvfs(path)
    except OSError:
        return None
    return stats.f_bavail * stats.f_frsize
