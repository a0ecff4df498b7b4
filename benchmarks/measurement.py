"""What a benchmark says."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Measurement:
    """One figure. `goal` is what it is held against, as text; `ok` whether it is met (None: nothing was promised)."""

    name: str
    value: float | None
    unit: str
    goal: str = ""
    ok: bool | None = None

    def as_row(self) -> dict[str, Any]:
        return {"name": self.name, "value": self.value, "unit": self.unit, "goal": self.goal, "ok": self.ok}


def below(name: str, value: float, unit: str, limit: float) -> Measurement:
    """A figure that should be smaller than a limit."""
    return Measurement(name, round(value, 2), unit, f"< {limit:g}", value < limit)


def at_most(name: str, value: float, unit: str, limit: float) -> Measurement:
    """A figure that should not exceed a limit."""
    return Measurement(name, round(value, 2), unit, f"<= {limit:g}", value <= limit)


def at_least(name: str, value: float, unit: str, limit: float) -> Measurement:
    """A figure that should reach a limit."""
    return Measurement(name, round(value, 2), unit, f">= {limit:g}", value >= limit)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share of the values lies (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def rss_mib(pid: int) -> float:
    """Resident memory of a process, MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


class PeakRss:
    """Highest resident memory of some processes while the block runs, in MiB; looked at every 5 ms."""

    def __init__(self, pids: dict[str, int]) -> None:
        self._pids = pids
        self._before = {name: rss_mib(pid) for name, pid in pids.items()}
        self._highest = dict(self._before)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakRss:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def highest(self) -> dict[str, float]:
        return dict(self._highest)

    def growth(self) -> dict[str, float]:
        return {name: self._highest[name] - self._before[name] for name in self._pids}

    def _watch(self) -> None:
        while not self._over.wait(0.005):
            for name, pid in self._pids.items():
                self._highest[name] = max(self._highest[name], rss_mib(pid))
