"""What a worker costs the machine's owner while it has nothing to do: two GPUs, an engine, and the usual intervals."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.measurement import Measurement, below, rss_mib
from tests.e2e.world import World, eventually
from tests.gpu_worker.nvml import build_nvml_stub

SETTLING_SECONDS = 20.0  # start, register, the first looks
WATCHED_SECONDS = 90.0  # six heartbeats
GOAL_MIB = 80.0
GOAL_SHARE = 0.01
GPUS = "".join(
    f"uuid=GPU-{name * 8} name=NVIDIA_RTX_4090 total=24564 free=24000 util=0 temp=40 power=20000 cc=8.9 mig=0\n"
    for name in "ab"
)


def measure(world: World) -> list[Measurement]:
    """Let a worker idle beside the control plane; its memory, and its share of one core with that of its children."""
    with tempfile.TemporaryDirectory(prefix="openface-idle-") as directory:
        worker = _start(world, Path(directory))
        try:
            eventually(lambda: (Path(directory) / "data" / "credential.json").exists(), "the worker has enrolled")
            time.sleep(SETTLING_SECONDS)
            before, began = _cpu_with_children(worker.pid), time.monotonic()
            time.sleep(WATCHED_SECONDS)
            share = (_cpu_with_children(worker.pid) - before) / (time.monotonic() - began)
            memory = rss_mib(worker.pid)
            assert worker.poll() is None, "the worker ended"
        finally:
            worker.terminate()
            worker.wait(20)
    world.manage("revoke", "idle")
    kind = "docker" if _has_engine() else "process"
    return [
        below("worker_idle_rss_mib", memory, f"MiB ({kind})", GOAL_MIB),
        Measurement("worker_idle_cpu_share", round(share, 4), "of one core", f"< {GOAL_SHARE:g}", share < GOAL_SHARE),
    ]


def _start(world: World, directory: Path) -> subprocess.Popen[bytes]:
    (directory / "token").write_text(world.manage("issue_enrollment_token", "idle").strip())
    (directory / "gpus.txt").write_text(GPUS)
    environment = {
        **{name: os.environ[name] for name in ("PATH", "DOCKER_HOST") if name in os.environ},
        "HOME": str(directory),
        "OPENFACE_URL": world.web,
        "WORKER_ENROLLMENT_TOKEN_FILE": str(directory / "token"),
        "WORKER_DATA_DIR": str(directory / "data"),
        "GPU_WORKER_PORT": "0",
        "OPENFACE_EXECUTOR": "docker" if _has_engine() else "process",
        "LD_LIBRARY_PATH": str(build_nvml_stub(directory)),
        "STUB_NVML_FILE": str(directory / "gpus.txt"),
    }
    with open(directory / "worker.log", "wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "gpu_worker", "run"],
            env=environment,
            stdout=log,
            stderr=log,
            cwd=Path(__file__).parents[1],
        )


def _has_engine() -> bool:
    docker = shutil.which("docker")
    return docker is not None and subprocess.run([docker, "info"], capture_output=True).returncode == 0


def _cpu_with_children(pid: int) -> float:
    """User and system time so far, of the process and of the children that it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(int(ticks) for ticks in fields[11:15]) / os.sysconf("SC_CLK_TCK")
