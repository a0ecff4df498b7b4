"""The two workers of the demo: a local one for CPU Spaces, and one that pretends to have GPUs and says so."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from openface.demo.engine import PUBLIC_BASE_IMAGE, Engine
from openface.installation import LOOPBACK, Installation
from openface.supervisor import Program

# What the worker ends with when trying again cannot help: a bad setting; revoked or superseded.
FINAL_STATUSES = frozenset({2, 78})
_STOP_SECONDS = 20.0

SIMULATED_GPUS = {
    "driver_version": "570.86.15",
    "cuda_version": "12.8",
    "gpus": [
        {
            "uuid": "GPU-51a00000-0000-4000-8000-000000000001",
            "index": 0,
            "vendor": "nvidia",
            "model": "NVIDIA GeForce RTX 4090",
            "total_vram_mib": 24564,
            "free_vram_mib": 24080,
            "ours": [],
            "foreign": [],
            "utilization_pct": 3,
            "temperature_c": 41,
            "power_w": 28,
            "compute_capability": "8.9",
            "mig": False,
            "healthy": True,
            "simulated": True,
        },
        {
            "uuid": "GPU-51a00000-0000-4000-8000-000000000002",
            "index": 1,
            "vendor": "nvidia",
            "model": "NVIDIA GeForce RTX 3060",
            "total_vram_mib": 12288,
            "free_vram_mib": 11912,
            "ours": [],
            "foreign": [],
            "utilization_pct": 0,
            "temperature_c": 36,
            "power_w": 14,
            "compute_capability": "8.6",
            "mig": False,
            "healthy": True,
            "simulated": True,
        },
    ],
}


@dataclass(frozen=True)
class Machine:
    """One worker on this machine: the number decides its gateway's port."""

    name: str
    number: int
    local: bool
    max_gpu_jobs: int
    max_cpu_jobs: int

    def directory(self, installation: Installation) -> Path:
        return installation.state_dir / "workers" / self.name

    def token_file(self, installation: Installation) -> Path:
        return installation.state_dir / "workers" / f"{self.name}.token"

    def gateway_url(self, installation: Installation) -> str:
        return f"http://{LOOPBACK}:{installation.gateway_port(self.number)}"

    def program(self, installation: Installation, engine: Engine) -> Program:
        """Return how to run it. Its state directory must exist."""
        environment = {
            "OPENFACE_URL": installation.web_url,
            "WORKER_NAME": self.name,
            "WORKER_DATA_DIR": str(self.directory(installation)),
            "WORKER_ENROLLMENT_TOKEN_FILE": str(self.token_file(installation)),
            "WORKER_PUBLIC_URL": self.gateway_url(installation),
            "GPU_WORKER_BIND_ADDRESS": LOOPBACK,
            "GPU_WORKER_PORT": str(installation.gateway_port(self.number)),
            "MAX_GPU_JOBS": str(self.max_gpu_jobs),
            "MAX_CPU_JOBS": str(self.max_cpu_jobs),
            "OPENFACE_EXECUTOR": engine.executor,
            "OPENFACE_BASE_IMAGE": engine.base_image,
        }
        if engine.base_image == PUBLIC_BASE_IMAGE:  # where a registry is reached, every app gets the Python it asks for
            environment["OPENFACE_PYTHON_IMAGE"] = "python:{version}-slim"
        if self.max_gpu_jobs:
            gpus = installation.state_dir / "workers" / "simulated-gpus.json"
            if not gpus.exists():  # afterwards it is the user's, to play with
                gpus.write_text(json.dumps(SIMULATED_GPUS, indent=2) + "\n", encoding="utf-8")
            environment["OPENFACE_SIMULATE_GPUS"] = str(gpus)
        return Program(
            name=self.name,
            command=[sys.executable, "-m", "gpu_worker", "run"],
            environment=environment,
            directory=Path(__file__).resolve().parent.parent.parent,
            stop_seconds=_STOP_SECONDS,
            final_statuses=FINAL_STATUSES,
        )


LOCAL = Machine(name="local", number=0, local=True, max_gpu_jobs=0, max_cpu_jobs=4)
GPU_BOX = Machine(name="gpu-box", number=1, local=False, max_gpu_jobs=2, max_cpu_jobs=0)
MACHINES = (LOCAL, GPU_BOX)
