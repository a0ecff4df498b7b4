"""The GPUs and their driver: three things go wrong here, each with a text of its own (driver, toolkit, the device)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gpu_worker.config import WorkerConfig
from gpu_worker.gpu_owners import GpuOwners
from gpu_worker.gpu_report import GpuReport
from gpu_worker.gpus import NvmlProbe
from gpu_worker.host import in_container
from gpu_worker.kernel_driver import KernelDriver
from gpu_worker.protocol import DoctorCheck, Gpu
from gpu_worker.simulated_gpus import SimulatedProbe

PCI_DEVICES = Path("/sys/bus/pci/devices")
NVIDIA_VENDOR = "0x10de"
DISPLAY_CLASS = "0x03"  # and whatever follows: VGA, 3D, other display controllers
MIB_PER_GB = 1024


@dataclass(frozen=True)
class DriverLook:
    """One look at GPUs, driver and hardware, for all checks that need it."""

    report: GpuReport
    simulated: bool
    wanted: bool
    """Whether GPU jobs are to run here."""
    module_version: str | None
    cards_on_the_bus: int

    @classmethod
    def now(cls, config: WorkerConfig) -> DriverLook:
        simulated = config.simulate_gpus is not None
        probe = SimulatedProbe(config.simulate_gpus) if config.simulate_gpus is not None else NvmlProbe()
        return cls(
            report=probe.report(GpuOwners()),
            simulated=simulated,
            wanted=config.max_gpu_jobs > 0,
            module_version=KernelDriver().version(),
            cards_on_the_bus=cards_on_the_bus(),
        )

    @property
    def needs_toolkit(self) -> bool:
        """Whether there are real GPUs that containers are to get."""
        return bool(self.report.gpus) and not self.simulated and self.wanted


def driver(look: DriverLook) -> DoctorCheck:
    report = look.report
    if look.simulated:
        return DoctorCheck("driver", None, "simulated GPUs need none")
    if report.error is None:
        cuda = f", CUDA up to {report.cuda_version}" if report.cuda_version else ""
        sick = next((gpu.error for gpu in report.gpus if gpu.error and "restarted" in gpu.error), None)
        if sick is not None:
            return DoctorCheck("driver", False, sick, "Restart this machine.")
        return DoctorCheck("driver", True, f"NVIDIA driver {report.driver_version or 'of unknown version'}{cuda}")
    if report.broken:
        return DoctorCheck("driver", False, report.error, "Restart this machine, and check with nvidia-smi.")
    if look.module_version is not None:
        return DoctorCheck(
            "driver",
            False,
            f"{report.error} The kernel runs driver {look.module_version}",
            "Start this worker's container with all GPUs and NVIDIA_DRIVER_CAPABILITIES=utility (see compose)."
            if in_container()
            else "Install the driver's libraries in the same version, and check with nvidia-smi.",
        )
    if look.cards_on_the_bus:
        return DoctorCheck(
            "driver",
            False if look.wanted else None,
            f"{look.cards_on_the_bus} NVIDIA card(s) on the bus, but no driver works: {report.error}",
            "Install the NVIDIA driver, so that nvidia-smi works; or set MAX_GPU_JOBS=0 to lend no GPU.",
        )
    return DoctorCheck("driver", None, f"no NVIDIA GPU here: CPU jobs only. {report.error}")


def gpus(look: DriverLook) -> DoctorCheck:
    found = look.report.gpus
    if not found:
        return DoctorCheck("gpu", None, "none")
    kind = "simulated GPU" if look.simulated else "GPU"
    detail = f"{len(found)} {kind}{'s' if len(found) > 1 else ''}: " + "; ".join(_described(gpu) for gpu in found)
    lost = (look.report.count or 0) - len(found)
    if lost > 0:
        detail += f"; {lost} more that the driver counts and cannot open"
    sick = lost > 0 or any(not gpu.healthy for gpu in found)
    remedy = "Look for Xid in the kernel log (dmesg); a restart of the machine often helps." if sick else None
    return DoctorCheck("gpu", not sick, detail, remedy)


def cards_on_the_bus(devices: Path = PCI_DEVICES) -> int:
    """NVIDIA's display controllers on the PCI bus, whether or not a driver knows them."""
    return sum(_read(device / "vendor") == NVIDIA_VENDOR and _read(device / "class").startswith(DISPLAY_CLASS)
               for device in devices.glob("*"))  # fmt: skip


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def _described(gpu: Gpu) -> str:
    size = f", {gpu.total_vram_mib / MIB_PER_GB:.1f} GB" if gpu.total_vram_mib else ""
    split = ", split into MIG devices" if gpu.mig else ""
    ill = f", not usable: {gpu.error}" if not gpu.healthy else ""
    return f"{gpu.model or 'GPU'} ({gpu.uuid}{size}{split}{ill})"
