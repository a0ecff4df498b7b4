"""What a look at the GPUs of this machine brings, whoever looks: the driver (gpus.py) or a file (simulated_gpus.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gpu_worker.gpu_owners import GpuOwners
from gpu_worker.gpu_trouble import Trouble
from gpu_worker.protocol import Gpu

# What a reading can be; outside of that it is not known.
PERCENT, CELSIUS, WATTS = (0, 100), (-273.15, 1000), (0, 1_000_000)


@dataclass(frozen=True)
class GpuReport:
    gpus: tuple[Gpu, ...] = ()
    count: int | None = 0
    """What the driver counts, GPUs and MIG devices, so that a lost GPU shows as a difference; None: not known."""
    driver_version: str | None = None
    cuda_version: str | None = None
    error: str | None = None
    """Why there is nothing to tell, in a sentence."""
    broken: bool = False
    """Whether there is a driver that ought to work; otherwise there is none, which is no fault."""
    trouble: Trouble | None = None
    """What is the matter with the driver as a whole, and what helps; also where it still answers."""
    unopened: tuple[Trouble, ...] = ()
    """Why GPUs that the driver counts are not among *gpus*."""

    @property
    def unopened_reason(self) -> str | None:
        """The same in words; None where there are no such GPUs."""
        return " ".join(dict.fromkeys(one.sentence for one in self.unopened)) or None


class GpuProbe(Protocol):
    def report(self, owners: GpuOwners) -> GpuReport: ...


def within(bounds: tuple[float, float], value: object) -> float | None:
    """A figure that can be true, else None: drivers in trouble tell 4294967295 % or worse."""
    least, most = bounds
    return float(value) if isinstance(value, (int, float)) and least <= value <= most else None
