"""A picture of this machine, taken by one thread at its own pace: GPUs, disk, engine, and what of ours runs.

Everyone else reads the newest picture without waiting; a driver or engine that hangs makes it old, never the
heartbeat late.
"""

from __future__ import annotations

import logging
import os
import platform
import shutil
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpu_worker import __version__
from gpu_worker.config import WorkerConfig
from gpu_worker.containers import ContainerEngine
from gpu_worker.cuda_requirement import Driver
from gpu_worker.errors import EngineError
from gpu_worker.executor import Executor, Found
from gpu_worker.gpu_owners import GpuOwners
from gpu_worker.gpu_quiet import Quiet
from gpu_worker.gpu_release import ReleaseWatch
from gpu_worker.gpu_report import GpuProbe, GpuReport
from gpu_worker.host import is_wsl2, sees_processes_of_the_machine
from gpu_worker.images import find_build_tool
from gpu_worker.protocol import JsonObject

logger = logging.getLogger(__name__)

MIB = 1024 * 1024
OLDEST_PICTURE_BEATS = 3  # heartbeats; an older list of containers says nothing about now
OLDEST_PICTURE_SECONDS = 10.0


@dataclass(frozen=True)
class EngineFacts:
    available: bool
    version: str | None = None
    engine_id: str | None = None
    root: str | None = None
    gpu_runtime: bool | None = None
    error: str | None = None


@dataclass(frozen=True)
class Picture:
    gpu: GpuReport
    engine: EngineFacts
    disk: JsonObject
    found: tuple[Found, ...] | None
    """What of ours is on the engine, in any state; None: it did not answer."""
    quiet: str | None = None
    """Why no GPU job is taken now although one could be: the owner of the machine uses a GPU. A sentence."""
    taken_at: float = 0.0


class Machine:
    def __init__(self, config: WorkerConfig, worker_id: str, executor: Executor, probe: GpuProbe) -> None:
        self._config, self._worker_id = config, worker_id
        self._executor, self._probe = executor, probe
        self._quiet = Quiet(config.quiet_above_mib)
        self.releases = ReleaseWatch()
        self._last_found: tuple[Found, ...] = ()
        self._buildkit: bool | None = None
        self._picture: Picture | None = None
        self._again = threading.Event()

    # -- taking the picture ------------------------------------------------------------------------------------

    def run(self, stop: threading.Event, interval: Callable[[], float]) -> None:
        """Take a picture every *interval* seconds, and when asked for one, until *stop*."""
        while not stop.is_set():
            self._again.clear()
            try:
                self.look()
            except Exception:
                # the outermost net of this loop: an odd driver must not end it
                logger.exception("probe failed", extra={"action": "probe_failed"})
            self._again.wait(interval())

    def look_again(self) -> None:
        """Ask for a fresh picture soon."""
        self._again.set()

    @property
    def newest(self) -> Picture | None:
        """The newest picture as it was taken, however old; None before the first."""
        return self._picture

    def look(self) -> Picture:
        """Take a picture now; may wait for the engine and the driver."""
        taken_at = time.monotonic()
        found: tuple[Found, ...] | None
        try:
            found = tuple(self._executor.inventory())
        except EngineError as problem:
            logger.warning("engine does not answer", extra={"action": "engine_silent", "problem": str(problem)})
            found = None
        engine = self._engine()
        self._last_found = self._last_found if found is None else found  # a silent engine makes no app a foreign one
        awaited = self.releases.awaited()
        gpu = self._probe.report(GpuOwners((*self._last_found, *awaited), measurable=_measurable()))
        gpu = replace(gpu, gpus=self.releases.see(gpu.gpus, awaited))
        picture = Picture(
            gpu=gpu,
            engine=engine,
            disk=self._disk(engine),
            found=found,
            quiet=self._quiet.reason(gpu.gpus, now=taken_at),
            taken_at=taken_at,
        )
        self._picture = picture
        return picture

    def picture(self, heartbeat_seconds: float) -> Picture:
        """The newest picture; its list of containers is None when it is too old to be believed."""
        picture = self._picture or self.look()
        oldest = max(OLDEST_PICTURE_SECONDS, OLDEST_PICTURE_BEATS * heartbeat_seconds)
        if time.monotonic() - picture.taken_at > oldest:
            return replace(picture, found=None)
        return picture

    def driver(self) -> Driver:
        """What the GPUs' driver is, as it was last seen."""
        gpu = (self._picture or self.look()).gpu
        return Driver(cuda=gpu.cuda_version, version=gpu.driver_version)

    def _engine(self) -> EngineFacts:
        if not isinstance(self._executor, ContainerEngine):
            return EngineFacts(available=False)
        try:
            info = self._executor.describe()
        except EngineError as problem:
            return EngineFacts(available=False, error=str(problem)[:1000])
        return EngineFacts(
            available=True,
            version=info.get("ServerVersion"),
            engine_id=info.get("ID"),
            root=info.get("DockerRootDir"),
            gpu_runtime=_gpu_runtime(info),
        )

    def _disk(self, engine: EngineFacts) -> JsonObject:
        return {
            "docker_root_free_mib": _free_mib(Path(engine.root)) if engine.root else None,
            "data_free_mib": _free_mib(self._config.data_dir),
        }

    # -- telling of it -----------------------------------------------------------------------------------------

    def capabilities(self, picture: Picture) -> JsonObject:
        if self._buildkit is None and picture.engine.available:
            self._buildkit = find_build_tool() is not None
        gpu, engine = picture.gpu, picture.engine
        return {
            "worker_id": self._worker_id,
            "name": self._config.name or None,
            "os": _os_name(),
            "arch": platform.machine(),
            "hostname": socket.gethostname(),
            "machine_hint": machine_hint(),
            "engine_id": engine.engine_id,
            "worker_version": __version__,
            "executor": self._executor.name,
            "docker": {
                "available": engine.available,
                "version": engine.version,
                "buildkit": self._buildkit if engine.available else None,
                "gpu_runtime": engine.gpu_runtime,
                "error": engine.error,
            },
            "driver_version": gpu.driver_version,
            "cuda_version": gpu.cuda_version,
            "features": _features(gpu),
            "max_jobs": {"gpu": self._config.max_gpu_jobs if gpu.gpus else 0, "cpu": self._config.max_cpu_jobs},
            "gpu_count": gpu.count,
            "gpu_paused_reason": picture.quiet,
            "gpu_unopened_reason": gpu.unopened_reason,
        }


def _gpu_runtime(info: dict[str, Any]) -> bool:
    """Whether the engine says it can give GPUs to containers: by a runtime, or by the toolkit's hook on its PATH."""
    return "nvidia" in (info.get("Runtimes") or {}) or shutil.which("nvidia-container-runtime-hook") is not None


def _features(gpu: GpuReport) -> list[str]:
    features = ["cpu"]
    if gpu.gpus:
        features += ["nvidia"] + (["cuda"] if gpu.cuda_version else [])
        if any(one.simulated for one in gpu.gpus):
            features.append("simulated")
        elif not sees_processes_of_the_machine():
            features.append("no_host_pids")  # the driver's process ids mean nothing here: no use can be told apart
    if is_wsl2():
        features.append("wsl2")
    return features


def _measurable() -> bool:
    """Whether the driver can tell here which process uses how much."""
    return sees_processes_of_the_machine() and not is_wsl2()


def _os_name() -> str:
    try:
        return f"{platform.freedesktop_os_release()['PRETTY_NAME']}, {platform.system()} {platform.release()}"
    except (OSError, KeyError):
        return f"{platform.system()} {platform.release()}"


def machine_hint() -> str | None:
    """A part of the machine id, shown to people so that they recognise clones; never identity."""
    try:
        return Path("/etc/machine-id").read_text().strip()[:16] or None
    except OSError:
        return None


def _free_mib(path: Path) -> int | None:
    try:
        stats = os.statvfs(path)
    except OSError:
        return None
    return stats.f_bavail * stats.f_frsize // MIB


def found_leases(found: Sequence[Found] | None) -> set[str]:
    return {one.facts.lease for one in found or ()}
