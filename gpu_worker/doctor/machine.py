"""The machine itself: where we write, what we fetch sources with, and what we can see of it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from gpu_worker.config import WorkerConfig
from gpu_worker.disk import DiskFloor
from gpu_worker.host import is_wsl2, sees_processes_of_the_machine
from gpu_worker.protocol import DoctorCheck

GIB = 1024**3
LITTLE_FREE = 30 * GIB  # images with CUDA have 5 to 15 GiB each


def data_dir(config: WorkerConfig) -> DoctorCheck:
    path = config.data_dir
    if path.is_dir() and os.access(path, os.W_OK):
        return DoctorCheck("data_dir", True, f"{path} is writable")
    what = "may not be written by this user" if path.is_dir() else "is not a directory"
    return DoctorCheck("data_dir", False, f"{path} {what}", f"Create it for the worker's user: mkdir -p {path}")


def disk(config: WorkerConfig) -> DoctorCheck:
    """Room where sources are fetched to; that for images is told with the engine."""
    path = config.data_dir if config.data_dir.is_dir() else config.data_dir.parent
    remedy = "Free some space, or set WORKER_DATA_DIR to a larger disk."
    return disk_check("disk", path, remedy, floor=DiskFloor(config.disk_floor_mib))


def disk_check(name: str, path: Path, remedy: str, *, floor: DiskFloor) -> DoctorCheck:
    """Good, or little, or too little room on the disk of *path*; not known where it cannot be seen from here."""
    try:
        free = shutil.disk_usage(path).free
    except OSError:
        return DoctorCheck(name, None, f"the disk of {path} cannot be seen from here")
    detail = f"{free / GIB:.1f} GiB free at {path}"
    if free < floor.of(path):
        below = f"below the floor of {floor.of(path) / GIB:.1f} GiB: no job is taken"
        return DoctorCheck(name, False, f"only {detail}, {below}", remedy)
    if free < LITTLE_FREE:
        return DoctorCheck(name, None, f"{detail}: enough for small images; one with CUDA takes 5 to 15 GiB", remedy)
    return DoctorCheck(name, True, detail)


def git(config: WorkerConfig) -> DoctorCheck:
    return _program("git", "git", "git is not installed, so no source can be fetched", "Install git.")


def git_lfs(config: WorkerConfig) -> DoctorCheck:
    missing = "git-lfs is not installed; repositories that use it will fail"
    return _program("git_lfs", "git-lfs", missing, "Install git-lfs.")


def _program(name: str, program: str, missing: str, remedy: str) -> DoctorCheck:
    found = shutil.which(program)
    return DoctorCheck(name, True, found) if found else DoctorCheck(name, False, missing, remedy)


def process_executor() -> DoctorCheck:
    return DoctorCheck("executor", None, "plain processes: nothing isolates Spaces from each other or this machine")


def pid_namespace() -> DoctorCheck:
    """Whether the driver's process ids mean anything here; without them sharing a GPU is not possible."""
    if sees_processes_of_the_machine():
        return DoctorCheck("pid_namespace", True, "the machine's processes are visible")
    return DoctorCheck(
        "pid_namespace",
        None,
        "this worker's container does not see the machine's processes: what each app uses of a GPU cannot be measured, "
        "so each GPU is given to one job as a whole, and programs of others on it are not named",
        'Start the container with the machine\'s process ids (compose: pid: "host"; docker run --pid=host).',
    )


def wsl2() -> list[DoctorCheck]:
    """What Windows does not tell; nothing on other machines."""
    if not is_wsl2():
        return []
    return [
        DoctorCheck(
            "wsl2",
            None,
            "this is Linux inside Windows: what each app uses of a GPU cannot be measured, so each GPU is given to one "
            "job as a whole; games under Windows show as use by nobody",
            "Nothing to do; QUIET_WHEN_GPU_BUSY=true keeps GPU jobs away while you use the GPU under Windows.",
        )
    ]
