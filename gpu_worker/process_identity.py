"""Which process is meant, in a way that a recycled pid cannot fool: pid, its start time, and this boot.

Where no file can be opened any more, nothing is known of any process: these functions raise OSError then.
"""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from gpu_worker.open_files import used_up

PROC = Path("/proc")


@dataclass(frozen=True)
class ProcessIdentity:
    pid: int
    start_ticks: int
    """Field 22 of /proc/<pid>/stat: clock ticks since boot when the process started."""
    boot_id: str

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity | None:
        """The identity of a live (not zombie) process, None when there is none."""
        stat = _stat(pid)
        if stat is None or stat[0] in ("Z", "X"):
            return None
        return cls(pid, int(stat[19]), boot_id())

    def alive(self) -> bool:
        return ProcessIdentity.of(self.pid) == self

    def signal_group(self, number: signal.Signals) -> None:
        """Signal the process group that this process leads; nothing when the pid means another process now."""
        if self.alive():
            signal_group(self.pid, number)


def signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def boot_id() -> str:
    """A random id of this boot of the machine."""
    try:
        return _boot_id(PROC)
    except OSError as problem:
        if used_up(problem):
            raise
        return "unknown"


@lru_cache(maxsize=8)
def _boot_id(proc: Path) -> str:
    return (proc / "sys/kernel/random/boot_id").read_text().strip()


def session_of(pid: int) -> int | None:
    stat = _stat(pid)
    return int(stat[3]) if stat is not None and stat[0] not in ("Z", "X") else None


def all_pids() -> list[int]:
    return [int(entry) for entry in os.listdir(PROC) if entry.isdecimal()]


def environment_of(pid: int) -> dict[str, str]:
    """The environment the process was started with; empty when it is not ours to read."""
    try:
        raw = (PROC / str(pid) / "environ").read_bytes()
    except OSError as problem:
        if used_up(problem):
            raise
        return {}
    pairs = (item.partition(b"=") for item in raw.split(b"\0") if b"=" in item)
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, _, value in pairs}


def _stat(pid: int) -> list[str] | None:
    """The fields after the command name (which may hold spaces and brackets): state is [0], session [3]."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except OSError as problem:
        if used_up(problem):
            raise
        return None
    return text.rpartition(")")[2].split()
