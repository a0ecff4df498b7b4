"""What one container may use of the machine: the job's own limits first, then this worker's; never without any.

A job without limits could take all memory and all process ids of the machine, and with them the worker and every
other app.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpu_worker.protocol import Limits

DEFAULT_PIDS = 1024
MOST_DEFAULT_MEMORY_MIB = 16 * 1024
MIB = 1024 * 1024


@dataclass(frozen=True)
class LimitDefaults:
    """The worker's settings for jobs that bring no limits; None: by the size of the machine."""

    memory_mib: int | None = None
    cpus: float | None = None
    pids: int = DEFAULT_PIDS


@dataclass(frozen=True)
class ContainerLimits:
    memory_mib: int
    cpus: float
    pids: int


def container_limits(asked: Limits, defaults: LimitDefaults, engine: Mapping[str, Any]) -> ContainerLimits:
    """The limits of one container on the machine that *engine* (the engine's own description) tells of.

    CPUs are cut to what the machine has: the engine refuses more.
    """
    half_mib = int(engine["MemTotal"]) // MIB // 2
    cores = int(engine["NCPU"])
    return ContainerLimits(
        memory_mib=asked.memory_mib or defaults.memory_mib or min(MOST_DEFAULT_MEMORY_MIB, half_mib),
        cpus=min(asked.cpus or defaults.cpus or cores, cores),
        pids=asked.pids or defaults.pids,
    )
