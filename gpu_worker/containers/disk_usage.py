"""What each of our apps has on the disk: what it keeps in its volumes, and what it wrote elsewhere in its container."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Mapping
from typing import Any

from gpu_worker.containers.connection import Connection, engine_errors
from gpu_worker.containers.labels import LEASE_LABEL, ours

logger = logging.getLogger(__name__)

MEASURE_SECONDS = 60.0  # a volume with a million files took 6 s


def disk_usage(engine: Connection, worker_id: str) -> dict[str, int]:
    """Bytes by lease, of what runs now; without those whose volumes take too long to look through. Slow.

    Raises EngineError.
    """
    with engine_errors():
        rows = engine().api.containers(size=True, filters=ours(worker_id))
    told: Mapping[str, int] | None = None
    sizes = {}
    for row in rows:
        size = int(row.get("SizeRw") or 0)
        volumes = [mount for mount in row.get("Mounts") or () if mount.get("Type") == "volume"]
        for volume in volumes:
            here = _size_of(str(volume.get("Source")))
            if here is None:  # the engine's directories cannot be seen from a container
                told = _volumes(engine) if told is None else told
                here = told.get(str(volume.get("Name")))
            if here is None:
                break
            size += here
        else:
            sizes[str((row.get("Labels") or {}).get(LEASE_LABEL))] = size
    return sizes


def _size_of(directory: str) -> int | None:
    """By the system's own program, which lets everybody else go first; None where it cannot be seen."""
    if not os.access(directory, os.R_OK | os.X_OK):
        return None
    argv = ["nice", "-n", "19", "du", "-s", "-x", "--block-size=1", "--", directory]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=MEASURE_SECONDS)
        return int(done.stdout.split()[0])  # also where a file vanished meanwhile
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError) as problem:
        logger.info("not measured", extra={"action": "not_measured", "directory": directory, "problem": str(problem)})
        return None


def _volumes(engine: Connection) -> dict[str, int]:
    with engine_errors():
        found: list[dict[str, Any]] = engine().api.df().get("Volumes") or []
    return {str(one["Name"]): int(one["UsageData"]["Size"]) for one in found if one.get("UsageData")}
