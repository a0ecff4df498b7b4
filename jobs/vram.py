"""The memory of one GPU: what is taken, what may still be given, and to whom as a whole. Pure arithmetic, in MiB.

A reservation is a promise, a reading is what the driver says, and both bound what may be given:

    available = min(total - sum of promises, free - what was promised and is not used yet) - margin

So a process that is not ours takes from what can be promised, and an app that has not loaded its model yet keeps what
it was promised. The margin is for what nobody promises: the driver, a desktop, an allocation rounded up.
"""

from __future__ import annotations

import dataclasses
import uuid
from dataclasses import dataclass, field
from typing import Any

# Left free of promises on every shared GPU, unless the operator sets another (OPENFACE_VRAM_MARGIN_MIB).
MARGIN_MIB = 512
# Desktop and driver use that does not keep a GPU from counting as idle: the larger of the two.
IDLE_FOREIGN_MIB = 1536
IDLE_FOREIGN_SHARE = 0.10
# What a job may use beyond its reservation before anybody is told: contexts and allocators round up. The larger counts.
TOLERATED_MIB = 256
TOLERATED_SHARE = 0.05
# Who asks for so much of a card gets all of it: the rest would be of no use to anybody.
WHOLE_SHARE = 0.90
BYTES_PER_MIB = 1024 * 1024
BYTES_PER_SOLD_GB = 1_000_000_000  # a topic "vram-24gb" means a card sold as 24 GB

# What stands for the name of a process where it is none: a container of a lease that nobody here knows, and memory that
# a lease which is over has left behind. Whoever shows them to people translates them (`spaces.waiting_words`).
ON_HOLD = "a container on hold"
LEFT_BEHIND = "an app that has ended"


@dataclass(frozen=True)
class Held:
    """VRAM of a GPU that one of our leases holds."""

    lease_id: uuid.UUID
    mib: int
    exclusive: bool
    used_mib: int | None = None  # measured; None: nothing was measured of it
    name: str = ""  # owner/repo


@dataclass(frozen=True)
class GpuOffer:
    """One GPU as last reported, with what is reserved on it."""

    gpu_id: int
    uuid: str
    index: int
    model: str
    total_mib: int  # the largest ever reported for it; 0: never told
    free_mib: int | None  # None: not known, or not to be believed
    healthy: bool = True
    error: str = ""
    good_reports_missing: int = 0  # it failed, and must be well in so many reports more before it is used again
    mig: bool = False
    simulated: bool = False
    present: bool = True
    reserved: tuple[Held, ...] = ()
    foreign_mib: int = 0  # of the processes listed
    foreign: tuple[tuple[int, str, int], ...] = ()  # pid, name, MiB
    measurable: bool = True  # whether the driver tells what each process uses
    elsewhere: str = ""  # another worker that reported this very card since
    doubts: tuple[tuple[str, int | None], ...] = ()  # readings that cannot be true: what was told, in MiB
    also_at: tuple[str, ...] = ()  # all other workers that report it: a cloned disk, or two workers on one machine
    margin_mib: int = MARGIN_MIB
    on_hold: bool = False  # given to a container of a lease that nobody here knows, which may use it at any moment


@dataclass(frozen=True)
class Share:
    """What a job gets of one GPU. `exclusive`: all of it, and nobody else gets any."""

    gpu: GpuOffer
    mib: int
    exclusive: bool


@dataclass(frozen=True)
class Obstacle:
    """Why a GPU cannot be given: a stable code and the figures that a sentence needs. `never`: waiting is no help."""

    code: str
    facts: dict[str, Any] = field(default_factory=dict)
    never: bool = False


def in_order(gpu: GpuOffer) -> bool:
    """Whether the GPU is there, well, and this worker's to give, whatever is on it."""
    failed = not gpu.healthy or gpu.good_reports_missing
    return gpu.present and not (failed or gpu.mig or gpu.elsewhere)


def reserved_mib(gpu: GpuOffer) -> int:
    """Sum of what is promised."""
    return sum(held.mib for held in gpu.reserved)


def foreign_mib(gpu: GpuOffer) -> int:
    """What is used there and not by us: what the processes listed use, or what is missing where that is more.

    Memory that no listed process owns up to counts too: of another user's container, or left behind by a crash.
    """
    if gpu.free_mib is None or not gpu.total_mib or (gpu.reserved and not gpu.measurable):
        return gpu.foreign_mib
    missing = gpu.total_mib - gpu.free_mib - sum(held.used_mib or 0 for held in gpu.reserved)
    return max(gpu.foreign_mib, missing, 0)


def available_mib(gpu: GpuOffer) -> int:
    """What may still be promised to a job that shares the GPU; 0 where it cannot be shared at all."""
    if gpu.on_hold or not shareable(gpu) or gpu.free_mib is None or any(held.exclusive for held in gpu.reserved):
        return 0
    unpromised = gpu.total_mib - reserved_mib(gpu)
    not_used_yet = sum(max(0, held.mib - (held.used_mib or 0)) for held in gpu.reserved)
    return max(0, min(unpromised, gpu.free_mib - not_used_yet) - gpu.margin_mib)


def shareable(gpu: GpuOffer) -> bool:
    """Whether it may be given in parts: only where what each job uses can be told apart."""
    return gpu.measurable and gpu.free_mib is not None and gpu.total_mib > 0


def takes_all(gpu: GpuOffer, vram_mib: int) -> bool:
    """Whether so much is as good as all of the card: nearly all of it, or more than may ever be shared out."""
    return vram_mib >= WHOLE_SHARE * gpu.total_mib or vram_mib > gpu.total_mib - gpu.margin_mib


def idle(gpu: GpuOffer) -> bool:
    """Whether nothing of ours is on it, and not more of others than a desktop needs."""
    return not gpu.reserved and not gpu.on_hold and foreign_mib(gpu) <= idle_limit_mib(gpu)


def idle_limit_mib(gpu: GpuOffer) -> float:
    """How much may be used there by others while the GPU still counts as idle."""
    return max(IDLE_FOREIGN_MIB, IDLE_FOREIGN_SHARE * gpu.total_mib)


def share_of(gpu: GpuOffer, vram_mib: int | None, *, whole: bool = False) -> Share | Obstacle:
    """What a job gets of a GPU that is in order, or what is in its way.

    `vram_mib`: the least it needs; None: any GPU, as a whole. `whole`: it wants one for itself whatever it needs.
    """
    if (small := never_enough(gpu, vram_mib)) is not None:
        return small
    if vram_mib is not None and not gpu.total_mib:
        return Obstacle("gpu_size_unknown")
    if gpu.on_hold:
        return Obstacle("gpu_on_hold")
    if whole or vram_mib is None or not shareable(gpu) or takes_all(gpu, vram_mib):
        asked_for = whole or vram_mib is None
        return Share(gpu, gpu.total_mib, exclusive=True) if idle(gpu) else _not_idle(gpu, asked_for=asked_for)
    if vram_mib <= available_mib(gpu):
        return Share(gpu, vram_mib, exclusive=False)
    return _too_little(gpu, vram_mib)


def never_enough(gpu: GpuOffer, vram_mib: int | None) -> Obstacle | None:
    """That the whole GPU is smaller than what is needed; None where it is not, or its size is not known."""
    if vram_mib is not None and 0 < gpu.total_mib < vram_mib:
        return Obstacle("gpu_too_small", never=True)
    return None


def left_after(share: Share) -> int:
    """What could still be promised on the GPU once the share is given."""
    return 0 if share.exclusive else max(0, available_mib(share.gpu) - share.mib)


def emptied(gpu: GpuOffer) -> GpuOffer:
    """The GPU as it would be without anything of ours; others' use and its health stay."""
    if not gpu.reserved:
        return gpu
    free = gpu.free_mib
    if free is not None:
        unmeasured = any(held.used_mib is None for held in gpu.reserved) and not gpu.measurable
        free = None if unmeasured else min(gpu.total_mib, free + sum(held.used_mib or 0 for held in gpu.reserved))
    return dataclasses.replace(gpu, reserved=(), free_mib=free)


def _not_idle(gpu: GpuOffer, *, asked_for: bool) -> Obstacle:
    if not gpu.reserved:
        return Obstacle("gpu_foreign_use")
    return Obstacle("gpu_reserved" if asked_for or shareable(gpu) else "gpu_unmeasured")


def _too_little(gpu: GpuOffer, vram_mib: int) -> Obstacle:
    """Blame what is in the way: a holder of the whole, our promises, or else the use of others."""
    if any(held.exclusive for held in gpu.reserved):
        return Obstacle("gpu_reserved")
    if vram_mib > gpu.total_mib - reserved_mib(gpu) - gpu.margin_mib:
        return Obstacle("gpu_vram_reserved")
    return Obstacle("gpu_foreign_use")


def exceeds(reserved: int, used: int) -> bool:
    """Whether a job uses so much more than it reserved that its neighbours should be told of it."""
    return used > reserved + max(TOLERATED_MIB, TOLERATED_SHARE * reserved)


def back_within(reserved: int, used: int) -> bool:
    """Whether a job that exceeded its reservation has come back. Lower than `exceeds`, so that no two alternate."""
    return used <= reserved


def sold_gb(mib: int) -> int | None:
    """The size in GB (10⁹ bytes) as a box says it, of a need that was given so; None for any other amount of MiB."""
    sold = round(mib * BYTES_PER_MIB / BYTES_PER_SOLD_GB)
    return sold if sold and sold * BYTES_PER_SOLD_GB // BYTES_PER_MIB == mib else None


def needed_memory(mib: int) -> str:
    """A need in MiB as its author wrote it: "12 GB" for the topic vram-12gb, else like `gigabytes`."""
    sold = sold_gb(mib)
    return gigabytes(mib) if sold is None else f"{sold} GB"


def gigabytes(mib: int) -> str:
    """MiB as people read a card's memory: 24,564 MiB is "24.0 GB"."""
    return f"{mib / 1024:.1f} GB"
