"""What kind of machine this is: whose process ids we see, and whether it is Windows that drives the GPU."""

from __future__ import annotations

import os
from pathlib import Path

# Which namespace of process ids we are in, and what the kernel calls the machine's own (PROC_PID_INIT_INO).
PID_NAMESPACE = Path("/proc/self/ns/pid")
MACHINES_PID_NAMESPACE = "pid:[4026531836]"
KERNEL = Path("/proc/version")
MOUNTS = Path("/proc/mounts")
WINDOWS_GPU = Path("/dev/dxg")  # how WSL2 hands the GPU of Windows on; there under kernels of people's own making too


def sees_processes_of_the_machine(namespace: Path = PID_NAMESPACE) -> bool:
    """Whether the process ids that the driver tells are ours to look up; not in a container with its own."""
    try:
        return os.readlink(namespace) == MACHINES_PID_NAMESPACE
    except OSError:
        return False


def is_wsl2(kernel: Path = KERNEL, windows_gpu: Path = WINDOWS_GPU) -> bool:
    """Whether this is Linux inside Windows, where the driver of Windows counts and no process can be told apart."""
    try:
        named = "microsoft" in kernel.read_text(errors="replace").lower()
    except OSError:
        named = False
    return named or windows_gpu.exists()


def in_container(mounts: Path = MOUNTS) -> bool:
    """Whether this worker itself runs in a container; as our image says, or as its root looks."""
    if os.environ.get("OPENFACE_WORKER_CONTAINER") == "1":
        return True
    try:
        roots = [line.split() for line in mounts.read_text().splitlines()]
    except OSError:
        return False
    # the mark alone is no proof: machines are made from images too
    return Path("/.dockerenv").exists() and any(fields[1] == "/" and fields[2] == "overlay" for fields in roots)
