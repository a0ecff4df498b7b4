"""Check what this machine needs before it can run jobs. Every check says what it saw and, when bad, what to do."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

import requests

from gpu_worker.config import WorkerConfig
from gpu_worker.containers import ContainerEngine
from gpu_worker.errors import EngineError
from gpu_worker.gpu_owners import GpuOwners
from gpu_worker.gpus import NvmlProbe
from gpu_worker.images import find_build_tool
from gpu_worker.protocol import DoctorCheck
from gpu_worker.simulated_gpus import SimulatedProbe

REACH_SECONDS = 5.0


def examine(config: WorkerConfig) -> list[DoctorCheck]:
    """All checks that concern this machine; none of them changes anything."""
    checks: list[Callable[[WorkerConfig], DoctorCheck]] = [_data_dir, _git, _git_lfs]
    if config.executor == "docker":
        checks += [_engine, _buildkit, _gpu_runtime]
    else:
        checks.append(_process_executor)
    checks.append(_gpu)
    return [check(config) for check in checks]


def reach(config: WorkerConfig) -> DoctorCheck:
    """Whether the control plane answers at all from here."""
    verify = str(config.verify_tls) if not isinstance(config.verify_tls, bool) else config.verify_tls
    try:
        answer = requests.get(f"{config.url}/api/v1/schema/", timeout=REACH_SECONDS, verify=verify, stream=True)
    except requests.RequestException as problem:
        return DoctorCheck(
            "control_plane",
            False,
            f"{config.url} does not answer: {type(problem).__name__}",
            "Check OPENFACE_URL, and that this machine may reach that address.",
        )
    return DoctorCheck("control_plane", True, f"{config.url} answers (HTTP {answer.status_code})")


def _data_dir(config: WorkerConfig) -> DoctorCheck:
    path = config.data_dir
    if path.is_dir() and os.access(path, os.W_OK):
        free = shutil.disk_usage(path).free // (1024 * 1024)
        return DoctorCheck("data_dir", True, f"{path} is writable, {free} MiB free")
    return DoctorCheck("data_dir", False, f"{path} is not a writable directory", "Create it, or set WORKER_DATA_DIR.")


def _git(config: WorkerConfig) -> DoctorCheck:
    found = shutil.which("git")
    return DoctorCheck("git", found is not None, found or "git is not installed", None if found else "Install git.")


def _git_lfs(config: WorkerConfig) -> DoctorCheck:
    found = shutil.which("git-lfs")
    return DoctorCheck(
        "git_lfs",
        found is not None,
        found or "git-lfs is not installed; repositories that use it will fail",
        None if found else "Install git-lfs.",
    )


def _engine(config: WorkerConfig) -> DoctorCheck:
    try:
        info = ContainerEngine("doctor").describe()
    except EngineError as problem:
        return DoctorCheck("engine", False, str(problem), "Start Docker, and let this user reach its socket.")
    return DoctorCheck("engine", True, f"Docker {info.get('ServerVersion')}, root {info.get('DockerRootDir')}")


def _buildkit(config: WorkerConfig) -> DoctorCheck:
    tool = find_build_tool()
    if tool is None:
        return DoctorCheck(
            "buildkit", False, "no docker command line here can drive BuildKit", "Install the docker buildx plugin."
        )
    return DoctorCheck("buildkit", True, f"{tool.path}: {tool.version}")


def _gpu_runtime(config: WorkerConfig) -> DoctorCheck:
    try:
        info = ContainerEngine("doctor").describe()
    except EngineError:
        return DoctorCheck("gpu_runtime", None, "the engine does not answer")
    if "nvidia" in (info.get("Runtimes") or {}) or shutil.which("nvidia-container-runtime-hook"):
        detail = "the NVIDIA runtime is known to Docker"
        if info.get("DefaultRuntime") == "nvidia":
            detail += "; it is the default runtime: the worker hides GPUs from CPU jobs by NVIDIA_VISIBLE_DEVICES=void"
        return DoctorCheck("gpu_runtime", True, detail)
    if config.max_gpu_jobs == 0 or config.simulate_gpus:
        return DoctorCheck("gpu_runtime", True, "Docker has no NVIDIA runtime; this worker needs none")
    return DoctorCheck(
        "gpu_runtime",
        False,
        "Docker has no NVIDIA runtime, so GPU jobs would fail",
        "Install the NVIDIA Container Toolkit and restart Docker; or set MAX_GPU_JOBS=0 where there is no GPU.",
    )


def _process_executor(config: WorkerConfig) -> DoctorCheck:
    return DoctorCheck("executor", True, "plain processes: no isolation between Spaces and this machine")


def _gpu(config: WorkerConfig) -> DoctorCheck:
    probe = SimulatedProbe(config.simulate_gpus) if config.simulate_gpus else NvmlProbe()
    report = probe.report(GpuOwners())
    if not report.gpus:
        return DoctorCheck(
            "gpu",
            None,
            f"no GPU ({report.error or 'the driver reports none'}); CPU jobs only",
            "With an NVIDIA GPU: install its driver, so that nvidia-smi works.",
        )
    kind = "simulated GPU" if config.simulate_gpus else "GPU"
    sick = [gpu.uuid for gpu in report.gpus if not gpu.healthy]
    names = ", ".join(gpu.model or gpu.uuid for gpu in report.gpus)
    return DoctorCheck(
        "gpu",
        not sick,
        f"{len(report.gpus)} {kind}(s): {names}" + (f"; not healthy: {', '.join(sick)}" if sick else ""),
        "Look at the kernel log for Xid messages; a restart often helps." if sick else None,
    )
