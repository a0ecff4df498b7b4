"""Leave the GPUs to the owner of the machine while something of the owner's runs on one.

A desktop always holds a little memory, so only more than that counts. Counted is all that is used and is not ours, also
where no process is listed for it (a game under Windows, seen from WSL2). Jobs that run already go on.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpu_worker.protocol import Gpu

IDLE_MIB = 1536  # what a desktop with its browser may hold; the larger of the two counts
IDLE_SHARE = 0.10
QUIET_AFTER_SECONDS = 120.0  # a game between two levels frees memory for a moment


class Quiet:
    def __init__(self, above_mib: int | None) -> None:
        """*above_mib*: how much use is the owner's own; 0: more than a desktop needs; None: never quiet."""
        self._above_mib = above_mib
        self._reason: str | None = None
        self._until = 0.0

    def reason(self, gpus: Sequence[Gpu], *, now: float) -> str | None:
        """Why no GPU job should be taken at *now* (monotonic seconds), in a sentence; None when one may be."""
        if self._above_mib is None:
            return None
        busy = next((gpu for gpu in gpus if others_mib(gpu) > self._limit_mib(gpu)), None)
        if busy is not None:
            self._reason, self._until = _sentence(busy), now + QUIET_AFTER_SECONDS
        elif now >= self._until:
            self._reason = None
        return self._reason

    def _limit_mib(self, gpu: Gpu) -> float:
        return self._above_mib or max(IDLE_MIB, IDLE_SHARE * (gpu.total_vram_mib or 0))


def others_mib(gpu: Gpu) -> int:
    """How much of a GPU others use, listed or not. Where our own use is not known, only what is listed counts."""
    listed = sum(process.mib or 0 for process in gpu.foreign)
    ours = [use.mib for use in gpu.ours]
    if gpu.mig or gpu.total_vram_mib is None or gpu.free_vram_mib is None or None in ours:
        return listed
    return max(listed, gpu.total_vram_mib - gpu.free_vram_mib - sum(mib or 0 for mib in ours))


def _sentence(gpu: Gpu) -> str:
    """No figures: they would change with every look."""
    name = f"GPU {gpu.index}" if gpu.index is not None else gpu.uuid
    largest = max(gpu.foreign, key=lambda process: process.mib or 0, default=None)
    if largest is None or largest.name is None:
        return f"{name} is in use by its owner."
    return f"{name} is in use by its owner: {largest.name} (pid {largest.pid})."
