"""What a benchmark says."""

from __future__ import annotations

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
