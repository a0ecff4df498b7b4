"""Whether a build can take the whole machine."""

from __future__ import annotations

from gpu_worker import build_groups
from gpu_worker.config import WorkerConfig
from gpu_worker.doctor.engine import EngineFacts
from gpu_worker.images import find_build_tool
from gpu_worker.protocol import DoctorCheck

NAME = "build_limits"
MADE_BY_OWNER = "Install the slice openface-builds (packaging/openface-builds.slice) and start it"


def build_limits(facts: EngineFacts, config: WorkerConfig) -> DoctorCheck:
    """What all builds together may use, or what is lost where nothing bounds them."""
    tool = find_build_tool()
    if facts.problem is not None or tool is None:
        return DoctorCheck(NAME, None, "nothing can be built, so there is nothing to bound")
    chosen = build_groups.choose(facts.info, config.build, buildx=tool.is_buildx)
    limits = chosen.in_force()
    if limits is None:
        return DoctorCheck(
            NAME,
            None,
            f"a step of a build may take all memory and all processes of this machine: {chosen.missing}",
            f"{MADE_BY_OWNER}; it needs Docker 23 or newer, with docker-buildx-plugin.",
        )
    memory = f"{limits.memory_mib} MiB of memory" if limits.memory_mib else "any amount of memory"
    processes = f"{limits.pids} processes" if limits.pids else "any number of processes"
    detail = f"all builds together may use {memory} and {processes}"
    if chosen.shared:
        detail += "; while one runs, that counts for every build on this machine, also for those of others"
    return DoctorCheck(NAME, True, detail)
