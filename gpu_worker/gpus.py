"""What the GPUs of this machine are and do now: the only module that imports ``pynvml``.

One unreadable field is None and one unreadable GPU is unhealthy; neither hides the others. A GPU is its UUID, and so is
each MIG device of one that is split up; the index is for people's eyes.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pynvml

from gpu_worker import gpu_trouble
from gpu_worker.gpu_owners import GpuOwners
from gpu_worker.gpu_report import CELSIUS, PERCENT, WATTS, GpuReport, within
from gpu_worker.gpu_trouble import Trouble
from gpu_worker.kernel_driver import KernelDriver
from gpu_worker.protocol import ForeignProcess, Gpu, GpuUse

logger = logging.getLogger(__name__)
_T = TypeVar("_T")

MIB = 1024 * 1024
MOST_FOREIGN = 100  # processes told of one GPU, the largest first; the control plane refuses lists without an end
# Where Windows puts the library for WSL2; not every container and service has it on its loader's path.
WSL_LIBRARY = Path("/usr/lib/wsl/lib/libnvidia-ml.so.1")

# Answers that say nothing about the health of a GPU: it lacks the feature, or we lack the right to ask.
_HARMLESS = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
    }
)


class NvmlProbe:
    """Reads NVML anew at each report, so that a driver that comes or goes is seen without a restart."""

    def __init__(self, driver: KernelDriver | None = None) -> None:
        self._driver = driver or KernelDriver()
        self._opened: dict[int, Gpu] = {}
        """By its index, as it was when it could be opened last."""
        self._cards = 0

    def report(self, owners: GpuOwners) -> GpuReport:
        try:
            _initialize()
        except pynvml.NVMLError as problem:
            return self._without_library(problem)
        try:
            return self._report(owners)
        finally:
            _try(pynvml.nvmlShutdown)

    def _report(self, owners: GpuOwners) -> GpuReport:
        cards, problem = _try(pynvml.nvmlDeviceGetCount)
        if cards is None:
            return replace(self._without_library(problem), count=None)
        if cards != self._cards:  # they may be numbered in another way now
            self._cards, self._opened = cards, {}
        unopened: list[Trouble] = []
        gpus = [gpu for index in range(cards) for gpu in self._card(index, cards, owners, unopened)]
        trouble = None
        if (outdated := self._driver.outdated()) is not None:
            trouble = replace(gpu_trouble.of_driver(gpu_trouble.MISMATCH, ""), sentence=outdated)
            gpus = [replace(gpu, healthy=False, error=outdated, trouble=trouble) for gpu in gpus]
        return GpuReport(
            gpus=tuple(gpus),
            count=cards + sum(gpu.uuid.startswith("MIG-") for gpu in gpus),
            driver_version=_text(_try(pynvml.nvmlSystemGetDriverVersion)[0]),
            cuda_version=_cuda(_try(pynvml.nvmlSystemGetCudaDriverVersion_v2)[0]),
            trouble=trouble,
            unopened=tuple(unopened),
        )

    def _card(self, index: int, cards: int, owners: GpuOwners, unopened: list[Trouble]) -> list[Gpu]:
        """A card, followed by its MIG devices; nothing where not even its name is known, and *unopened* has why."""
        handle, problem = _try(pynvml.nvmlDeviceGetHandleByIndex, index)
        uuid = None
        if problem is None:
            uuid, problem = _try(pynvml.nvmlDeviceGetUUID, handle)
        if not (name := _text(uuid)):
            return self._unnamed(index, cards, problem, unopened)
        card = self._opened[index] = _gpu(handle, name, index, owners)
        if not card.mig:
            return [card]
        # what runs on a card that is split up is told by its parts, once
        return [replace(card, ours=(), foreign=()), *_mig_devices(handle, card, owners)]

    def _unnamed(self, index: int, cards: int, problem: Any, unopened: list[Trouble]) -> list[Gpu]:
        """A GPU that the driver counts and the library cannot open; we may know which one it is, or the module.

        One that this user was never let open is not to be lent, so it is none of ours.
        """
        logger.warning("gpu unreadable", extra={"action": "gpu_unreadable", "index": index, "problem": str(problem)})
        known, trouble, before = self._driver.cards(), _trouble_of_gpu(problem), self._opened.get(index)
        if before is not None:
            return [_unusable(before.uuid, index, before.model, trouble)]
        uuid = known[index].uuid if len(known) == cards else None
        if uuid is None or (problem is not None and problem.value == gpu_trouble.NO_PERMISSION):
            unopened.append(trouble)
            return []
        return [_unusable(uuid, index, known[index].model, trouble)]

    def _without_library(self, problem: Any) -> GpuReport:
        """Nothing can be asked. After an update of the driver the GPUs are named all the same, as not usable."""
        trouble = gpu_trouble.of_driver(problem.value, str(problem))
        report = GpuReport(error=trouble.sentence, trouble=trouble, broken=problem.value not in gpu_trouble.ABSENT)
        if problem.value != gpu_trouble.MISMATCH:
            return report
        known = self._driver.cards()
        gpus = tuple(_unusable(card.uuid, place, card.model, trouble) for place, card in enumerate(known) if card.uuid)
        return replace(report, gpus=gpus, count=len(known) or None, driver_version=self._driver.version())


class _Readings:
    """Reads one GPU field by field. What failed is None, and the reasons are kept."""

    def __init__(self, handle: object) -> None:
        self._handle = handle
        self._answers = 0
        self._failures: list[Any] = []

    def read(self, call: Callable[..., _T], *arguments: object) -> _T | None:
        value, problem = _try(call, self._handle, *arguments)
        if problem is None:
            self._answers += 1
        else:
            self._failures.append(problem)
        return value

    @property
    def trouble(self) -> Trouble | None:
        """Why the GPU cannot be used: it said so, or answered nothing at all."""
        grave = [problem for problem in self._failures if problem.value in gpu_trouble.GRAVE]
        if not grave and not self._answers:
            grave = [problem for problem in self._failures if problem.value not in _HARMLESS]
        return _trouble_of_gpu(grave[0]) if grave else None


def _gpu(handle: object, uuid: str, index: int, owners: GpuOwners) -> Gpu:
    readings = _Readings(handle)
    memory = readings.read(pynvml.nvmlDeviceGetMemoryInfo)
    capability = readings.read(pynvml.nvmlDeviceGetCudaComputeCapability)
    utilization = readings.read(pynvml.nvmlDeviceGetUtilizationRates)
    power = readings.read(pynvml.nvmlDeviceGetPowerUsage)
    mig = readings.read(pynvml.nvmlDeviceGetMigMode)
    model = _text(readings.read(pynvml.nvmlDeviceGetName))
    celsius = readings.read(pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU)
    ours, foreign = _processes(handle, uuid, owners)
    trouble = readings.trouble
    return Gpu(
        uuid=uuid,
        index=index,
        vendor="NVIDIA",
        model=model,
        total_vram_mib=None if memory is None else int(memory.total) // MIB,
        free_vram_mib=None if memory is None else int(memory.free) // MIB,
        ours=ours,
        foreign=foreign,
        utilization_pct=None if utilization is None else within(PERCENT, utilization.gpu),
        temperature_c=within(CELSIUS, celsius),
        power_w=None if power is None else within(WATTS, power / 1000),
        compute_capability=None if capability is None else f"{capability[0]}.{capability[1]}",
        mig=None if mig is None else bool(mig[0]),
        healthy=trouble is None,
        error=trouble.sentence if trouble else None,
        trouble=trouble,
    )


def _mig_devices(handle: object, card: Gpu, owners: GpuOwners) -> list[Gpu]:
    """The parts of a split card, each a GPU of its own; what only the whole card knows is told for each of them."""
    devices = []
    for place in range(_try(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle)[0] or 0):
        device, _ = _try(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, place)
        uuid = None if device is None else _text(_try(pynvml.nvmlDeviceGetUUID, device)[0])
        if not uuid:
            continue  # a place that is free
        part = _gpu(device, uuid, card.index or 0, owners)
        devices.append(
            replace(
                part,
                model=part.model or f"{card.model or 'GPU'} MIG",
                compute_capability=part.compute_capability or card.compute_capability,
                temperature_c=part.temperature_c if part.temperature_c is not None else card.temperature_c,
                mig=False,
                healthy=part.healthy and card.healthy,
                error=card.error or part.error,
                trouble=card.trouble or part.trouble,
            )
        )
    return devices


def _processes(handle: object, uuid: str, owners: GpuOwners) -> tuple[tuple[GpuUse, ...], tuple[ForeignProcess, ...]]:
    """Who uses how much. Where that cannot be told, each lease of ours there uses an amount that is not known."""
    computing, problem = _try(pynvml.nvmlDeviceGetComputeRunningProcesses, handle)
    if problem is not None or not owners.measurable:
        return tuple(GpuUse(lease, None) for lease in owners.leases_on(uuid)), ()
    drawing = _try(pynvml.nvmlDeviceGetGraphicsRunningProcesses, handle)[0]
    ours: dict[str, GpuUse] = {}
    foreign = []
    # one that computes and draws is listed twice
    for process in {one.pid: one for one in (*(drawing or ()), *(computing or ()))}.values():
        mib = None if process.usedGpuMemory is None else int(process.usedGpuMemory) // MIB
        lease = owners.lease_of(process.pid)
        if lease is None:
            foreign.append(ForeignProcess(process.pid, process_name(process.pid), mib))
        else:
            before = ours.get(lease, GpuUse(lease, 0))
            # a sum with an unknown part is unknown
            total = None if mib is None or before.mib is None else before.mib + mib
            ours[lease] = GpuUse(lease, total, (*before.pids, process.pid))
    foreign.sort(key=lambda process: -(process.mib or 0))
    return tuple(ours.values()), tuple(foreign[:MOST_FOREIGN])


def process_name(pid: int) -> str | None:
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()  # a process may call itself anything
    except OSError:
        return None


def _initialize() -> None:
    """Open the driver's library, also where only Windows knows where it lies. Raises NVMLError."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as problem:
        if problem.value != pynvml.NVML_ERROR_LIBRARY_NOT_FOUND or not WSL_LIBRARY.exists():
            raise
        with suppress(OSError):
            ctypes.CDLL(str(WSL_LIBRARY))  # once loaded, the loader finds it by its name
        pynvml.nvmlInit()


def _try(call: Callable[..., _T], *arguments: object) -> tuple[_T | None, Any]:
    """The answer, or None and the driver's error; (None, None) for a text that is none: the GPU is there."""
    try:
        return call(*arguments), None
    except pynvml.NVMLError as problem:
        return None, problem
    except UnicodeDecodeError:
        return None, None


def _trouble_of_gpu(problem: Any) -> Trouble:
    return gpu_trouble.of_gpu(getattr(problem, "value", None), str(problem or "it has no readable name"))


def _unusable(uuid: str, index: int, model: str | None, trouble: Trouble) -> Gpu:
    return Gpu(
        uuid=uuid, index=index, vendor="NVIDIA", model=model, healthy=False, error=trouble.sentence, trouble=trouble
    )


def _text(value: object) -> str | None:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str) else None


def _cuda(version: int | None) -> str | None:
    """12040 → 12.4"""
    return None if version is None else f"{version // 1000}.{version % 1000 // 10}"


def assigned_gpus(gpus: Sequence[Gpu], uuids: Sequence[str]) -> list[Gpu] | None:
    """The GPUs with these UUIDs, None when one of them is missing or not healthy."""
    known = {gpu.uuid: gpu for gpu in gpus if gpu.healthy}
    return [known[uuid] for uuid in uuids] if all(uuid in known for uuid in uuids) else None
