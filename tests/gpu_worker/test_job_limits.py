"""No container runs without limits: the job's own, then the worker's, then by the machine's size."""

from __future__ import annotations

import pytest

from gpu_worker.job_limits import ContainerLimits, LimitDefaults, container_limits
from gpu_worker.protocol import Limits

SMALL = {"MemTotal": 8 * 1024**3, "NCPU": 2}
LARGE = {"MemTotal": 512 * 1024**3, "NCPU": 64}
ASKED = Limits(memory_mib=64, cpus=0.5, pids=50)
SET = LimitDefaults(memory_mib=2000, cpus=4, pids=300)


@pytest.mark.parametrize(
    ("asked", "defaults", "machine", "expected"),
    [
        (Limits(), LimitDefaults(), SMALL, ContainerLimits(4096, 2, 1024)),
        (Limits(), LimitDefaults(), LARGE, ContainerLimits(16384, 64, 1024)),
        (Limits(), SET, LARGE, ContainerLimits(2000, 4, 300)),
        (Limits(), SET, SMALL, ContainerLimits(2000, 2, 300)),
        (ASKED, SET, LARGE, ContainerLimits(64, 0.5, 50)),
        (Limits(cpus=99), SET, SMALL, ContainerLimits(2000, 2, 300)),
        (Limits(memory_mib=0, cpus=0, pids=0), LimitDefaults(), SMALL, ContainerLimits(4096, 2, 1024)),
    ],
    ids=["small machine", "large machine", "settings", "fewer CPUs than set", "the job's own", "too many", "zeros"],
)
def test_a_container_always_has_limits(
    asked: Limits, defaults: LimitDefaults, machine: dict[str, int], expected: ContainerLimits
) -> None:
    assert container_limits(asked, defaults, machine) == expected
