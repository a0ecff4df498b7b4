"""GPUs that do not exist, from a JSON file: for the demo, for tests, and for trying out a fleet."""

from __future__ import annotations

import json
from pathlib import Path

from gpu_worker.errors import ConfigError, WireError
from gpu_worker.gpu_owners import GpuOwners
from gpu_worker.gpu_report import CELSIUS, PERCENT, WATTS, GpuReport, within
from gpu_worker.protocol import Fields, ForeignProcess, Gpu, GpuUse


class SimulatedProbe:
    """GPUs from a JSON file, read again at each report. Marked as simulated wherever they are shown."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def report(self, owners: GpuOwners) -> GpuReport:
        try:
            return read_simulated(self._file)
        except ConfigError as problem:
            return GpuReport(count=None, error=str(problem))


def read_simulated(file: Path) -> GpuReport:
    """The GPUs that *file* describes. Raises ConfigError with a sentence."""
    try:
        content = Fields(json.loads(file.read_text()), "the file")
        gpus = tuple(_simulated(place, entry) for place, entry in enumerate(content.objects("gpus")))
        return GpuReport(
            gpus=gpus,
            count=content.optional_integer("gpu_count") or len(gpus),
            driver_version=content.optional_text("driver_version"),
            cuda_version=content.optional_text("cuda_version"),
        )
    except (OSError, ValueError, WireError) as problem:
        raise ConfigError(f"The simulated GPUs in {file} cannot be read: {problem}") from problem


def _simulated(place: int, entry: Fields) -> Gpu:
    index, total = entry.optional_integer("index"), entry.optional_integer("total_vram_mib")
    free = entry.optional_integer("free_vram_mib")
    foreign = tuple(
        ForeignProcess(other.integer("pid"), other.optional_text("name"), other.optional_integer("mib"))
        for other in entry.objects("foreign")
    )
    return Gpu(
        uuid=entry.text("uuid"),
        index=place if index is None else index,
        vendor=entry.optional_text("vendor") or "NVIDIA",
        model=entry.optional_text("model"),
        total_vram_mib=total,
        free_vram_mib=total if free is None else free,
        ours=tuple(GpuUse(use.text("lease"), use.optional_integer("mib")) for use in entry.objects("ours")),
        foreign=foreign,
        utilization_pct=within(PERCENT, entry.optional_number("utilization_pct")),
        temperature_c=within(CELSIUS, entry.optional_number("temperature_c")),
        power_w=within(WATTS, entry.optional_number("power_w")),
        compute_capability=entry.optional_text("compute_capability"),
        mig=entry.boolean("mig", False),
        healthy=entry.boolean("healthy", True),
        error=entry.optional_text("error"),
        simulated=True,
    )
