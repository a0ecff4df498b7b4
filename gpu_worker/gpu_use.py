"""How much of a GPU an app used, and what is left of that when the app is gone. Pure arithmetic, in MiB.

Others' use may grow meanwhile, and part of a GPU is always used by nobody who is listed: what an app has left is what
its own processes still hold, or by how much that part has grown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpu_worker.protocol import Gpu

# What may come and go on a GPU without any process that is listed: contexts, the driver's own, figures rounded up.
LEAST_UNLISTED_MIB = 512
PROCESSES_NAMED = 3


@dataclass(frozen=True)
class Use:
    """What an app used of one GPU when it was seen last, in MiB."""

    mib: int
    unlisted_mib: int | None
    """Used at the same moment by no process that is listed; None: cannot be told."""
    missed: bool = False
    """Whether the newest look did not see it: the app may just have ended. After two it had given the memory back."""


@dataclass(frozen=True)
class Left:
    """Memory of one GPU that is not released. *pids*: of the processes that hold it; none: nobody who is listed."""

    uuid: str
    name: str
    mib: int
    pids: tuple[int, ...] = ()


def unlisted_mib(gpu: Gpu) -> int | None:
    """How much of a GPU nobody who is listed uses; None where one figure of the sum is missing."""
    listed = [*(use.mib for use in gpu.ours), *(other.mib for other in gpu.foreign)]
    if gpu.mig or not gpu.healthy or gpu.total_vram_mib is None or gpu.free_vram_mib is None or None in listed:
        return None
    return max(0, gpu.total_vram_mib - gpu.free_vram_mib - sum(mib or 0 for mib in listed))


def left_on(gpu: Gpu, lease: str, before: Use) -> Left | None:
    """What an app that is gone has left on a GPU; None: nothing, or nothing that could be told from others' use."""
    name = f"GPU {gpu.index}" if gpu.index is not None else gpu.uuid
    for use in gpu.ours:
        if use.lease == lease:
            return None if use.mib is None else Left(gpu.uuid, name, use.mib, use.pids)
    now = unlisted_mib(gpu)
    if now is None or before.unlisted_mib is None:
        return None
    grown = min(before.mib, now - before.unlisted_mib)
    return Left(gpu.uuid, name, grown) if grown > LEAST_UNLISTED_MIB else None


def told(left: Sequence[Left], space: str) -> str:
    """In a sentence for who looks after the machine, with what to do."""
    amounts = " and ".join(f"{one.name} has not released {one.mib} MiB" for one in left)
    pids = sorted({pid for one in left for pid in one.pids})
    if not pids:
        return (
            f"{amounts} of {space}, which has ended; no process that is listed holds it. "
            "Restart this machine, or reset the GPU (nvidia-smi --gpu-reset) while nothing uses it."
        )
    names = ", ".join(str(pid) for pid in pids[:PROCESSES_NAMED])
    which = f"process {names}" if len(pids) == 1 else f"processes {names}"
    return (
        f"{amounts} of {space}, which has ended: held by {which} of its container. "
        "End that with kill -9; where it does not end, restart this machine."
    )
