"""The environment an app starts with. The worker's own variables win over the repository's and the owner's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from gpu_worker.journal import JobFacts
from gpu_worker.protocol import Gpu

LEASE_VARIABLE = "OPENFACE_LEASE"
WORKER_VARIABLE = "OPENFACE_WORKER"
SIMULATED_VARIABLE = "OPENFACE_SIMULATED_GPUS"

_OWNED = frozenset(
    {"PORT", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", LEASE_VARIABLE, WORKER_VARIABLE, SIMULATED_VARIABLE}
)
_OWNED_PREFIXES = ("NVIDIA_", "CUDA_MPS_")


def job_environment(
    facts: JobFacts, *, variables: Mapping[str, str], secrets: Mapping[str, str], port: int, assigned: Sequence[Gpu]
) -> dict[str, str]:
    """Variables and secrets of the job without the names we own, then ours.

    *assigned* are the job's GPUs as probed. Without one every GPU is hidden, also from images that carry
    NVIDIA_VISIBLE_DEVICES=all (every nvidia/cuda image does).
    """
    environment = {name: value for name, value in {**variables, **secrets}.items() if not owned(name)}
    uuids = ",".join(facts.gpus)
    environment |= {
        "PORT": str(port),
        "NVIDIA_VISIBLE_DEVICES": uuids or "void",
        "CUDA_VISIBLE_DEVICES": uuids or "-1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        LEASE_VARIABLE: facts.lease,
    }
    simulated = [gpu.wire() for gpu in assigned if gpu.simulated]
    if simulated:
        environment[SIMULATED_VARIABLE] = json.dumps(simulated)
    return environment


def owned(name: str) -> bool:
    """Whether the worker alone sets this variable."""
    return name.upper() in _OWNED or name.upper().startswith(_OWNED_PREFIXES)
