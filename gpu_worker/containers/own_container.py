"""Which container this worker itself runs in, if any: one that has to join the networks of its jobs."""

from __future__ import annotations

import re
import socket
from pathlib import Path

from docker import DockerClient

from gpu_worker.containers.connection import Missing, engine_errors

MARK = Path("/.dockerenv")
MOUNTS = Path("/proc/self/mountinfo")
# The engine mounts its own hosts file into every container, from a directory named after the container. Where these are
# seen at another place than a container's own, it is reading files of somebody else's, which it mounts on the host.
OWN_FILES = re.compile(r"/containers/([0-9a-f]{64})/(hostname|hosts|resolv\.conf) /etc/\2 ")


def own_container(client: DockerClient) -> str | None:
    """Its id; None on the host, under another engine, or in the host's network, where nothing is to join.

    Raises EngineError: an engine that does not answer says nothing about where we are.
    """
    if not MARK.exists():
        return None
    for name in names_of_mine():
        try:
            with engine_errors():
                container = client.containers.get(name)
        except Missing:
            continue
        return None if container.attrs["HostConfig"]["NetworkMode"] == "host" else str(container.id)
    return None


def names_of_mine(mounts: Path = MOUNTS) -> list[str]:
    """What the engine may know us by. The host name is the short id, unless somebody has given another."""
    try:
        ids = [found[1] for found in OWN_FILES.finditer(mounts.read_text())]
    except OSError:
        ids = []
    return [*dict.fromkeys(ids), socket.gethostname()]
