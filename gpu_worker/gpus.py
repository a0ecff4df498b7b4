"""What the GPUs of this machine are and do now: the only module that imports ``pynvml``.

One unreadable field is None and one unreadable GPU is unhealthy; neither hides the others. A GPU is its UUID.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pynvml

from gpu_worker.errors import ConfigError, WireError
from gpu_worker.protocol import Fields, ForeignProcess, Gpu, GpuUse

logger = logging.getLogger(__name__)
_T = TypeVar("_T")

MIB = 1024 * 1024
# What a reading can be; outside of that it is not known.
PERCENT, CELSIUS, WATTS = (0, 100), (-273.15, 1000), (0, 1_000_000)
LeaseOfPid = Callable[[int], str | None]
"""The lease whose app a host pid belongs to, None for a foreign process."""


@dataclass(frozen=True)
class GpuReport:
    gpus: tuple[Gpu, ...] = ()
    count: int | None = 0
    """The driver's own count, so that a lost GPU shows as a difference; None: not known."""
    driver_version: str | None = None
    cuda_version: str | None = None
    error: str | None = None
    """Why there is nothing to tell."""


class GpuProbe(Protocol):
    def report(self, lease_of_pid: LeaseOfPid) -> GpuReport: ...


class NvmlProbe:
    """Reads NVML anew at each report, so that a driver that comes or goes is seen without a restart."""

    def report(self, lease_of_pid: LeaseOfPid) -> GpuReport:
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as problem:
            return GpuReport(error=str(problem))
        try:
            count = _read(pynvml.nvmlDeviceGetCount)
            gpus = tuple(self._gpu(index, lease_of_pid) for index in range(count or 0))
            return GpuReport(
                gpus=tuple(gpu for gpu in gpus if gpu is not None),
                count=count,
                driver_version=_text(_read(pynvml.nvmlSystemGetDriverVersion)),
                cuda_version=_cuda(_read(pynvml.nvmlSystemGetCudaDriverVersion_v2)),
            )
        finally:
            _read(pynvml.nvmlShutdown)

    def _gpu(self, index: int, lease_of_pid: LeaseOfPid) -> Gpu | None:
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            uuid = _text(pynvml.nvmlDeviceGetUUID(handle))
        except (pynvml.NVMLError, UnicodeDecodeError) as problem:
            # without its UUID it cannot be named; the difference to the driver's count tells of it
            logger.warning(
                "gpu unreadable", extra={"action": "gpu_unreadable", "index": index, "problem": str(problem)}
            )
            return None
        if uuid is None:
            return None
        memory, failure = _try(pynvml.nvmlDeviceGetMemoryInfo, handle)
        capability = _read(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
        utilization = _read(pynvml.nvmlDeviceGetUtilizationRates, handle)
        power = _read(pynvml.nvmlDeviceGetPowerUsage, handle)
        mig = _read(pynvml.nvmlDeviceGetMigMode, handle)
        ours, foreign = _processes(handle, lease_of_pid)
        lost = failure is not None and failure.value in (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_UNKNOWN)
        return Gpu(
            uuid=uuid,
            index=index,
            vendor="NVIDIA",
            model=_text(_read(pynvml.nvmlDeviceGetName, handle)),
            total_vram_mib=None if memory is None else int(memory.total) // MIB,
            free_vram_mib=None if memory is None else int(memory.free) // MIB,
            ours=ours,
            foreign=foreign,
            utilization_pct=None if utilization is None else _within(PERCENT, utilization.gpu),
            temperature_c=_within(CELSIUS, _read(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU)),
            power_w=None if power is None else _within(WATTS, power / 1000),
            compute_capability=None if capability is None else f"{capability[0]}.{capability[1]}",
            mig=None if mig is None else bool(mig[0]),
            healthy=not lost,
            error=str(failure) if lost else None,
        )


class SimulatedProbe:
    """GPUs from a JSON file, read again at each report. Marked as simulated wherever they are shown."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def report(self, lease_of_pid: LeaseOfPid) -> GpuReport:
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
        utilization_pct=_within(PERCENT, entry.optional_number("utilization_pct")),
        temperature_c=_within(CELSIUS, entry.optional_number("temperature_c")),
        power_w=_within(WATTS, entry.optional_number("power_w")),
        compute_capability=entry.optional_text("compute_capability"),
        mig=entry.boolean("mig", False),
        healthy=entry.boolean("healthy", True),
        error=entry.optional_text("error"),
        simulated=True,
    )


def _processes(handle: object, lease_of_pid: LeaseOfPid) -> tuple[tuple[GpuUse, ...], tuple[ForeignProcess, ...]]:
    ours: dict[str, int | None] = {}
    foreign: dict[int, ForeignProcess] = {}
    running = [
        *(_read(pynvml.nvmlDeviceGetComputeRunningProcesses, handle) or ()),
        *(_read(pynvml.nvmlDeviceGetGraphicsRunningProcesses, handle) or ()),
    ]
    seen = set()
    for process in running:
        if process.pid in seen:
            continue  # one that computes and draws is listed twice
        seen.add(process.pid)
        mib = None if process.usedGpuMemory is None else int(process.usedGpuMemory) // MIB
        lease = lease_of_pid(process.pid)
        if lease is None:
            foreign[process.pid] = ForeignProcess(process.pid, _name(process.pid), mib)
        elif mib is None or ours.get(lease, 0) is None:
            ours[lease] = None  # a sum with an unknown part is unknown
        else:
            ours[lease] = (ours.get(lease) or 0) + mib
    return tuple(GpuUse(lease, mib) for lease, mib in ours.items()), tuple(foreign.values())


def _name(pid: int) -> str | None:
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()  # a process may call itself anything
    except OSError:
        return None


def _read(call: Callable[..., _T], *arguments: object) -> _T | None:
    return _try(call, *arguments)[0]


def _try(call: Callable[..., _T], *arguments: object) -> tuple[_T | None, Any]:
    try:
        return call(*arguments), None
    except pynvml.NVMLError as problem:
        return None, problem
    except UnicodeDecodeError:
        return None, None  # a text that is none is not known; the GPU is there


def _text(value: object) -> str | None:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str) else None


def _within(bounds: tuple[float, float], value: object) -> float | None:
    """A figure that can be true, else None: drivers in trouble tell 4294967295 % or worse."""
    least, most = bounds
    return float(value) if isinstance(value, (int, float)) and least <= value <= most else None


def _cuda(version: int | None) -> str | None:
    """12040 → 12.4"""
    return None if version is None else f"{version // 1000}.{version % 1000 // 10}"


def assigned_gpus(gpus: Sequence[Gpu], uuids: Sequence[str]) -> list[Gpu] | None:
    """The GPUs with these UUIDs, None when one of them is missing or not healthy."""
    known = {gpu.uuid: gpu for gpu in gpus if gpu.healthy}
    return [known[uuid] for uuid in uuids] if all(uuid in known for uuid in uuids) else None
