"""The container engine, how images are built with it, and whether it can give GPUs to containers."""

from __future__ import annotations

import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_worker.config import WorkerConfig
from gpu_worker.containers import ContainerEngine
from gpu_worker.disk import DiskFloor
from gpu_worker.doctor.machine import disk_check
from gpu_worker.doctor.reasons import reason_of
from gpu_worker.errors import EngineError
from gpu_worker.host import in_container
from gpu_worker.images import find_build_tool
from gpu_worker.protocol import DoctorCheck

TOOLKIT_HOOK = "nvidia-container-runtime-hook"
TOOLKIT_CONFIG = Path("/etc/nvidia-container-runtime/config.toml")
# The links without which the engine forgets a container's GPU when systemd reloads; 195 is NVIDIA's device number.
DEVICE_LINKS = Path("/dev/char")
NVIDIA_MAJOR = 195


@dataclass(frozen=True)
class EngineFacts:
    info: dict[str, Any]
    problem: str | None = None
    """Why nothing is known."""


def ask() -> EngineFacts:
    """What the engine says of itself."""
    try:
        return EngineFacts(ContainerEngine("doctor").describe())
    except EngineError as problem:
        return EngineFacts({}, f"the container engine does not answer: {reason_of(problem)}")


def engine(facts: EngineFacts, config: WorkerConfig) -> DoctorCheck:
    if facts.problem is not None:
        return DoctorCheck(
            "engine",
            False,
            facts.problem,
            "Start Docker, and let this user reach its socket (group docker, or DOCKER_HOST).",
        )
    info = facts.info
    remedy = "Free some space, or move Docker's data-root to a larger disk."
    room = disk_check("engine", Path(str(info.get("DockerRootDir"))), remedy, floor=DiskFloor(config.disk_floor_mib))
    return DoctorCheck("engine", room.ok, f"Docker {info.get('ServerVersion')}; images: {room.detail}", room.remedy)


def buildkit() -> DoctorCheck:
    tool = find_build_tool()
    if tool is None:
        return DoctorCheck(
            "buildkit",
            False,
            "no docker command line here can drive BuildKit, so nothing can be built",
            "Install the docker command line with its buildx plugin (docker-buildx-plugin).",
        )
    return DoctorCheck("buildkit", True, f"{tool.path}: {tool.version}")


def gpu_support(facts: EngineFacts, *, wanted: bool) -> list[DoctorCheck]:
    """Whether Docker can give GPUs to containers, and what about that may surprise. *wanted*: real GPUs are to be."""
    if not wanted:
        return [DoctorCheck("gpu_runtime", None, "no NVIDIA GPU to give to containers; nothing is needed")]
    if facts.problem is not None:
        return [DoctorCheck("gpu_runtime", None, "the engine does not answer")]
    return [_toolkit(facts.info), *_default_runtime(facts.info), *_control_groups(facts.info)]


def _toolkit(info: dict[str, Any]) -> DoctorCheck:
    if "nvidia" in (info.get("Runtimes") or {}):
        return DoctorCheck("gpu_runtime", True, "Docker knows the runtime of the NVIDIA Container Toolkit")
    hook = shutil.which(TOOLKIT_HOOK)
    if hook is not None:
        return DoctorCheck("gpu_runtime", True, f"the NVIDIA Container Toolkit is installed ({hook})")
    if in_container():
        return DoctorCheck(
            "gpu_runtime",
            None,
            "Docker names no NVIDIA runtime; whether it has the toolkit's hook cannot be seen from a container",
            "doctor --test-device starts a container with a GPU, which tells.",
        )
    return DoctorCheck(
        "gpu_runtime",
        False,
        "Docker has no NVIDIA Container Toolkit, so GPU jobs would fail after their build",
        "Install the NVIDIA Container Toolkit and restart Docker; or set MAX_GPU_JOBS=0 to lend no GPU.",
    )


def _default_runtime(info: dict[str, Any]) -> list[DoctorCheck]:
    """Where NVIDIA's is the default runtime, every image of NVIDIA's sees all GPUs unless told otherwise."""
    if info.get("DefaultRuntime") != "nvidia" or not _images_may_ask():
        return []
    return [
        DoctorCheck(
            "default_runtime",
            None,
            "nvidia is Docker's default runtime: any image may ask for all GPUs and gets them. The worker denies it to "
            "its own containers (NVIDIA_VISIBLE_DEVICES=void); others on this machine take what they ask for",
            'Remove "default-runtime": "nvidia" from /etc/docker/daemon.json; the worker does not need it.',
        )
    ]


def _images_may_ask() -> bool:
    """Whether the toolkit listens to the environment of an image; it does unless its settings say otherwise."""
    try:
        settings = tomllib.loads(TOOLKIT_CONFIG.read_text())
    except (OSError, ValueError):
        return True
    return settings.get("accept-nvidia-visible-devices-envvar-when-unprivileged") is not False


def _control_groups(info: dict[str, Any]) -> list[DoctorCheck]:
    """Whether a reload of systemd takes the GPUs away from running containers."""
    if info.get("CgroupDriver") != "systemd" or any(DEVICE_LINKS.glob(f"{NVIDIA_MAJOR}:*")):
        return []
    return [
        DoctorCheck(
            "cgroups",
            None,
            "systemd manages Docker's control groups: after `systemctl daemon-reload` (any update may do it) running "
            "apps can lose their GPU until they are started again; the worker notices within minutes",
            'Set "exec-opts": ["native.cgroupdriver=cgroupfs"] in /etc/docker/daemon.json and restart Docker, or run '
            "nvidia-ctk system create-dev-char-symlinks --create-all at each start of the machine.",
        )
    ]
