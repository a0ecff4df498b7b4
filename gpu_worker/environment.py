"""The environment an app starts with. The worker's own variables win over the repository's and the owner's."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence

from gpu_worker.job_limits import ContainerLimits
from gpu_worker.journal import JobFacts
from gpu_worker.protocol import Gpu

LEASE_VARIABLE = "OPENFACE_LEASE"
WORKER_VARIABLE = "OPENFACE_WORKER"
SIMULATED_VARIABLE = "OPENFACE_SIMULATED_GPUS"
RESULTS_VARIABLE = "OPENFACE_RESULTS"
RESULTS_PATH = "/results"  # where a batch job leaves what is to be kept of it

# What an app may know of its share of the machine, in the names that Hugging Face gives.
CORES_VARIABLE, MEMORY_VARIABLE, ACCELERATOR_VARIABLE = "CPU_CORES", "MEMORY", "ACCELERATOR"

_OWNED = frozenset(
    {
        "PORT",
        "CUDA_VISIBLE_DEVICES",
        "CUDA_DEVICE_ORDER",
        LEASE_VARIABLE,
        WORKER_VARIABLE,
        SIMULATED_VARIABLE,
        RESULTS_VARIABLE,
        CORES_VARIABLE,
        MEMORY_VARIABLE,
        ACCELERATOR_VARIABLE,
    }
)
_OWNED_PREFIXES = ("NVIDIA_", "CUDA_MPS_")
# Of an image's NVIDIA_* variables: what its programs need of the driver, and what NVIDIA's images say of themselves.
# Any other may ask the Container Toolkit for devices, of which only the worker decides.
_OF_AN_IMAGE = re.compile(r"NVIDIA_(DRIVER_CAPABILITIES|DISABLE_REQUIRE|REQUIRE_\w+|PRODUCT_NAME|BUILD_ID|\w+_VERSION)")


def job_environment(
    facts: JobFacts,
    *,
    variables: Mapping[str, str],
    secrets: Mapping[str, str],
    port: int,
    assigned: Sequence[Gpu],
    limits: ContainerLimits | None = None,
) -> dict[str, str]:
    """Variables and secrets of the job without the names we own, then ours.

    *assigned* are the job's GPUs as probed. Without one every GPU is hidden, also from images that carry
    NVIDIA_VISIBLE_DEVICES=all (every nvidia/cuda image does). *limits*: None where the app has the whole machine.
    """
    environment = {name: value for name, value in {**variables, **secrets}.items() if not owned(name)}
    uuids = ",".join(facts.gpus)
    environment |= {
        "PORT": str(port),
        "NVIDIA_VISIBLE_DEVICES": uuids or "void",
        "CUDA_VISIBLE_DEVICES": uuids or "-1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        LEASE_VARIABLE: facts.lease,
        ACCELERATOR_VARIABLE: _accelerator(assigned),
    }
    if limits is not None:
        environment |= {
            CORES_VARIABLE: str(math.ceil(limits.cpus)),  # a whole number everywhere: apps size their pools by it
            MEMORY_VARIABLE: _memory(limits.memory_mib),
        }
    if facts.mode == "batch":
        environment[RESULTS_VARIABLE] = RESULTS_PATH
    simulated = [gpu.wire() for gpu in assigned if gpu.simulated]
    if simulated:
        environment[SIMULATED_VARIABLE] = json.dumps(simulated)
    return environment


def owned(name: str) -> bool:
    """Whether the worker alone sets this variable."""
    return name.upper() in _OWNED or name.upper().startswith(_OWNED_PREFIXES)


def not_of_an_image(names: Iterable[str]) -> set[str]:
    """Those of an image's variables that no container may keep."""
    return {name for name in names if name.upper().startswith(_OWNED_PREFIXES) and not _OF_AN_IMAGE.fullmatch(name)}


def cache_environment(path: str) -> dict[str, str]:
    """Where models and other downloads go, for an app that has a cache at *path* and does not say so itself."""
    return {"HF_HOME": f"{path}/huggingface", "TORCH_HOME": f"{path}/torch", "XDG_CACHE_HOME": path}


def _accelerator(assigned: Sequence[Gpu]) -> str:
    """``none``, or the model in the form of Hugging Face's hardware names: ``rtx-4090``, ``rtx-4090-x2``."""
    if not assigned:
        return "none"
    model = re.sub(r"[^a-z0-9]+", "-", (assigned[0].model or "gpu").lower()).strip("-")
    model = re.sub(r"^(nvidia-)?(geforce-)?", "", model) or "gpu"
    return model if len(assigned) == 1 else f"{model}-x{len(assigned)}"


def _memory(mib: int) -> str:
    return f"{mib // 1024}Gi" if mib % 1024 == 0 else f"{mib}Mi"
