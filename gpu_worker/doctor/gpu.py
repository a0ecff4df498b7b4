"""The GPUs and their driver: three things go wrong here, each with a text of its own (driver, toolkit, the device)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gpu_worker import gpu_trouble
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
NOT_LOADED = gpu_trouble.of_driver(gpu_trouble.NOT_LOADED, "")
FORBIDDEN = gpu_trouble.of_gpu(gpu_trouble.NO_PERMISSION, "")
CHECK = "Look for Xid in the kernel log (dmesg); a restart of the machine often helps. Check with nvidia-smi."
COMPOSE = "Start this worker's container with all GPUs and NVIDIA_DRIVER_CAPABILITIES=utility (see compose)."


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
        """Whether there are real GPUs that containers are to get, now or when the driver is well again."""
        return (bool(self.report.gpus) or self.report.broken) and not self.simulated and self.wanted


def driver(look: DriverLook) -> DoctorCheck:
    report, trouble = look.report, look.report.trouble
    if look.simulated:
        return DoctorCheck("driver", None, "simulated GPUs need none")
    remedy = trouble.help(in_container=in_container()) if trouble is not None else CHECK
    if report.broken or (report.error is None and trouble is not None):
        return DoctorCheck("driver", False, report.error or (trouble.sentence if trouble else None), remedy)
    if report.error is None:
        cuda = f", CUDA up to {report.cuda_version}" if report.cuda_version else ""
        return DoctorCheck("driver", True, f"NVIDIA driver {report.driver_version or 'of unknown version'}{cuda}")
    if look.module_version is not None and trouble == NOT_LOADED:
        return DoctorCheck(
            "driver",
            False,
            f"The kernel runs driver {look.module_version}, but its devices (/dev/nvidiactl) are not here",
            COMPOSE if in_container() else "Make them (nvidia-modprobe -u -c 0), and check with nvidia-smi.",
        )
    if look.module_version is not None:
        return DoctorCheck("driver", False, f"{report.error} The kernel runs driver {look.module_version}", remedy)
    if look.cards_on_the_bus:
        install = remedy if trouble == NOT_LOADED else "Install the NVIDIA driver, so that nvidia-smi works."
        return DoctorCheck(
            "driver",
            False if look.wanted else None,
            f"{look.cards_on_the_bus} NVIDIA card(s) on the bus, but no driver works: {report.error}",
            f"{install} Or set MAX_GPU_JOBS=0 to lend no GPU.",
        )
    return DoctorCheck("driver", None, f"no NVIDIA GPU here: CPU jobs only. {report.error}")


def gpus(look: DriverLook) -> DoctorCheck:
    report, found = look.report, look.report.gpus
    if not found and not report.unopened:
        return DoctorCheck("gpu", None, "not known while the driver does not work" if report.broken else "none")
    kind = "simulated GPU" if look.simulated else "GPU"
    detail = f"{len(found)} {kind}{'' if len(found) == 1 else 's'}"
    detail += ": " + "; ".join(_described(gpu) for gpu in found) if found else ""
    closed = report.unopened.count(FORBIDDEN)
    if closed:
        detail += f"; {closed} more that this user may not open"
    lost = (report.count or 0) - len(found) - closed
    if lost > 0:
        why = " ".join(dict.fromkeys(one.sentence for one in report.unopened if one != FORBIDDEN))
        detail += f"; {lost} more that the driver counts and cannot open{f': {why}' if why else ''}"
    sick = lost > 0 or any(not gpu.healthy for gpu in found)
    troubles = [*(gpu.trouble for gpu in found if gpu.trouble is not None), *report.unopened]
    remedies = dict.fromkeys(trouble.help(in_container=in_container()) for trouble in troubles)
    if sick and not remedies:
        remedies = {CHECK: None}
    return DoctorCheck("gpu", False if sick else None if closed else True, detail, " ".join(remedies) or None)


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
