"""Whose process on a GPU is it, and which lease was given which GPU.

A process is ours by the container it runs in, which no app can leave or fake, and which a worker without privileges can
read; else, for apps without a container, by the mark in the environment they were started with.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpu_worker.environment import LEASE_VARIABLE
from gpu_worker.executor import Found
from gpu_worker.process_identity import environment_of

PROC = Path("/proc")
SHORT_ID = 12  # characters of a container's id that stand for it
_CONTAINER_ID = re.compile(r"\b[0-9a-f]{64}\b")


@dataclass(frozen=True)
class GpuOwners:
    """*found* is what of ours is on this machine; *measurable*: whether the driver's process ids mean anything here."""

    found: Sequence[Found] = ()
    measurable: bool = True

    def lease_of(self, pid: int) -> str | None:
        """The lease whose app this process of the machine belongs to, None for a foreign one."""
        leases = {one.reference[:SHORT_ID]: one.facts.lease for one in self.found}
        containers = containers_of(pid)
        for container in containers:
            if container[:SHORT_ID] in leases:
                return leases[container[:SHORT_ID]]
        if set(containers) - set(containers_of("self")):
            return None  # it runs in somebody else's, whatever its environment says
        try:
            return environment_of(pid).get(LEASE_VARIABLE)
        except OSError:
            return None  # no file can be opened now

    def leases_on(self, uuid: str) -> list[str]:
        """The leases to which this GPU was given."""
        return [one.facts.lease for one in self.found if uuid in one.facts.gpus]


def containers_of(pid: int | str) -> list[str]:
    """The ids of the containers a process runs in, from the names of its control groups; innermost last."""
    try:
        text = (PROC / str(pid) / "cgroup").read_text()
    except OSError:
        return []
    return list(dict.fromkeys(_CONTAINER_ID.findall(text)))
