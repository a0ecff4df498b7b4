"""The container engine, how images are built with it, and whether it can give GPUs to containers."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_worker.config import WorkerConfig
from gpu_worker.containers.connection import Connection, engine_errors
from gpu_worker.disk import DiskFloor
from gpu_worker.doctor.machine import disk_check
from gpu_worker.engine_address import engine_address
from gpu_worker.engine_away import REMEDY, what_is_wrong
from gpu_worker.errors import EngineError, EngineSilent
from gpu_worker.host import in_container
from gpu_worker.images import find_build_tool
from gpu_worker.protocol import DoctorCheck

ASK_SECONDS = 20.0
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
    address: str = "an unknown place"


def ask() -> EngineFacts:
    """What the engine says of itself, and where it is."""
    try:
        address = str(engine_address())
    except EngineError as problem:
        return EngineFacts({}, str(problem))
    connection = Connection()
    try:
        with engine_errors():
            return EngineFacts(dict(connection().info()), address=address)
    except EngineSilent as problem:
        return EngineFacts({}, what_is_wrong(problem), address)
    except EngineError as problem:
        return EngineFacts({}, f"the container engine at {address} refuses: {problem}", address)
    finally:
        connection.close()


def engine(facts: EngineFacts, config: WorkerConfig) -> DoctorCheck:
    if facts.problem is not None:
        return DoctorCheck(
            "engine",
            False,
            facts.problem,
            REMEDY,
        )
    info = facts.info
    remedy = "Free some space, or move Docker's data-root to a larger disk."
    room = disk_check("engine", Path(str(info.get("DockerRootDir"))), remedy, floor=DiskFloor(config.disk_floor_mib))
    said = f"Docker {info.get('ServerVersion')} at {facts.address}; images: {room.detail}"
    return DoctorCheck("engine", room.ok, said, room.remedy)


def buildkit(facts: EngineFacts) -> DoctorCheck:
    """Whether images can be built, and on the same engine that runs them."""
    tool = find_build_tool()
    if tool is None and facts.problem is not None and shutil.which("docker"):
        # it says nothing at all with some wrong settings, not even what it can do
        return DoctorCheck("buildkit", None, "cannot be checked while the engine does not answer")
    if tool is None:
        return DoctorCheck(
            "buildkit",
            False,
            "no docker command line here can drive BuildKit, so nothing can be built",
            "Install the docker command line with its buildx plugin (docker-buildx-plugin).",
        )
    there = None if facts.problem is not None else _engine_of(tool.path)
    if there not in (None, facts.info.get("ID")):
        return DoctorCheck(
            "buildkit",
            False,
            f"{tool.path} builds on another engine ({there or 'it reaches none'}) than the one at {facts.address}",
            "Compare `docker info` of this user with the check engine; say DOCKER_HOST in the worker's settings.",
        )
    return DoctorCheck("buildkit", True, f"{tool.path}: {tool.version}")


def _engine_of(program: str) -> str | None:
    """The id of the engine that this docker command line talks to; "" where it reaches none, None: it does not say."""
    try:
        done = subprocess.run(
            (program, "info", "--format", "{{.ID}}"), capture_output=True, text=True, timeout=ASK_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip()


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
