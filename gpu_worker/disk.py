"""How much of the disk may be used up: below the floor this worker takes no job, so that its owner keeps some."""

from __future__ import annotations

import os
from pathlib import Path

from gpu_worker.errors import JobFailed

MIB, GIB = 1024 * 1024, 1024 * 1024 * 1024
# Where no floor is set: enough for one large image, but never more than a small disk can spare.
USUAL_FLOOR = 10 * GIB
USUAL_SHARE = 0.05
LOWEST_FLOOR = 1 * GIB
RESERVE = 512 * MIB  # what a source may never take: journal and logs need a place too


class DiskFloor:
    """The floor of each file system that jobs fill. *mib*: what the owner set; None: the usual floor."""

    def __init__(self, mib: int | None = None) -> None:
        self._mib = mib
        self._usual: dict[Path, int] = {}

    def of(self, path: Path) -> int:
        """Bytes that have to stay free where *path* is."""
        if self._mib is not None:
            return self._mib * MIB
        if path not in self._usual:  # asked once: the heartbeat's thread must not wait for a disk
            self._usual[path] = usual_floor(_total(path))
        return self._usual[path]

    def shortage(self, free_mib: dict[Path, int | None]) -> str | None:
        """Why no job is taken, in a sentence; None where there is room. What is not known is not counted."""
        for path, free in free_mib.items():
            if free is not None and free * MIB < self.of(path):
                return (
                    f"Only {gib(free * MIB)} of disk are free at {path}, "
                    f"below the floor of {gib(self.of(path))} (DISK_FLOOR_MIB)."
                )
        return None


def usual_floor(total: int | None) -> int:
    """The floor of a disk of *total* bytes whose owner has set none."""
    return USUAL_FLOOR if total is None else int(max(LOWEST_FLOOR, min(USUAL_FLOOR, USUAL_SHARE * total)))


def ensure_room(path: Path, needed: int) -> None:
    """Raise JobFailed (``disk_full``) where *needed* bytes, known beforehand, would fill the disk."""
    free = _free(path)
    if free is not None and free - needed < RESERVE:
        raise JobFailed("disk_full", f"The source needs {gib(needed)}, and only {gib(free)} are free.")


def gib(size: float) -> str:
    return f"{size / GIB:.1f} GiB"


def _free(path: Path) -> int | None:
    try:
        stats = os.statvfs(path)
    except OSError:
        return None
    return stats.f_bavail * stats.f_frsize


def _total(path: Path) -> int | None:
    try:
        stats = os.statvfs(path)
    except OSError:
        return None
    return stats.f_blocks * stats.f_frsize
