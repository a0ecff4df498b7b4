"""May this worker take this kind of job, and if not, why not. Pure: plain data in, a placement or a refusal out.

The claim and every "why is it waiting?" ask the same function, so that the two can never disagree.
Sizes are MiB. For now a GPU job takes whole GPUs; `vram_mib` is the least a GPU must have.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

Kind = Literal["cpu", "gpu"]

# Desktop and driver use that does not keep a GPU from counting as idle.
IDLE_FOREIGN_MIB = 1536
IDLE_FOREIGN_SHARE = 0.10


@dataclass(frozen=True)
class RequirementSpec:
    """What a job needs. Equal needs are one class, and one row."""

    kind: Kind
    gpu_count: int = 0
    vram_mib: int | None = None  # per GPU
    exclusive: bool = False
    features: tuple[str, ...] = ()
    worker_id: uuid.UUID | None = None  # an operator named this one


@dataclass(frozen=True)
class Held:
    """VRAM of a GPU that one of our leases holds."""

    lease_id: uuid.UUID
    mib: int
    exclusive: bool
    used_mib: int | None = None  # measured; None: not measurable there
    name: str = ""  # owner/repo


@dataclass(frozen=True)
class GpuOffer:
    """One GPU as last reported, with what is reserved on it."""

    gpu_id: int
    uuid: str
    index: int
    model: str
    total_mib: int
    free_mib: int | None
    healthy: bool = True
    error: str = ""
    mig: bool = False
    simulated: bool = False
    present: bool = True
    reserved: tuple[Held, ...] = ()
    foreign_mib: int = 0
    foreign: tuple[tuple[int, str, int], ...] = ()  # pid, name, MiB


@dataclass(frozen=True)
class WorkerOffer:
    """One worker's standing, room and GPUs at this moment."""

    worker_id: uuid.UUID
    name: str
    local: bool = False
    online: bool = True
    revoked: bool = False
    scheduling: str = "open"
    accepting: bool = True
    paused_reason: str = ""
    gateway_ok: bool = True
    gateway_detail: str = ""
    features: frozenset[str] = frozenset()
    free_gpu_slots: int = 0
    free_cpu_slots: int = 0
    gpus: tuple[GpuOffer, ...] = ()
    offline_since: datetime | None = None
    remote_enabled: bool = True
    simulated_allowed: bool = False


@dataclass(frozen=True)
class Placement:
    """It fits, on these GPUs (none for a CPU job)."""

    gpus: tuple[GpuOffer, ...] = ()


@dataclass(frozen=True)
class GpuRefusal:
    """Why one GPU does not do. `facts` are the sentence's figures, for a translation or a picture."""

    gpu: GpuOffer
    code: str
    sentence: str
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Refusal:
    """Why it does not fit. `never`: waiting alone will not change it."""

    code: str
    sentence: str
    never: bool = False
    facts: dict[str, Any] = field(default_factory=dict)
    per_gpu: tuple[GpuRefusal, ...] = ()


def fits(offer: WorkerOffer, spec: RequirementSpec, *, mode: str) -> Placement | Refusal:
    """Decide whether `offer` can take a job of class `spec` now, and on which GPUs."""
    refusal = _not_this_worker(offer, spec) or _not_now(offer, mode=mode)
    if refusal:
        return refusal
    if spec.kind == "cpu":
        return Placement() if offer.free_cpu_slots > 0 else _full(offer, "CPU")
    return _place_on_gpus(offer, spec)


def _not_this_worker(offer: WorkerOffer, spec: RequirementSpec) -> Refusal | None:
    """Reasons that time alone does not mend."""
    if spec.worker_id is not None and spec.worker_id != offer.worker_id:
        return Refusal("other_worker_named", f"{offer.name} is not the worker an operator named for it.", never=True)
    if offer.revoked:
        return Refusal("worker_revoked", f"{offer.name} was revoked.", never=True)
    if spec.kind == "cpu" and not offer.local and spec.worker_id is None:
        return Refusal("cpu_runs_locally", f"{offer.name} takes GPU jobs; CPU Spaces run on local workers.", never=True)
    if spec.kind == "gpu" and not offer.gpus:
        return Refusal("no_gpu", f"{offer.name} has no GPU.", never=True)
    missing = sorted(set(spec.features) - offer.features)
    if missing:
        names = ", ".join(missing)
        return Refusal("feature_missing", f"{offer.name} does not offer {names}.", never=True, facts={"missing": names})
    return None


def _not_now(offer: WorkerOffer, *, mode: str) -> Refusal | None:
    """Standing of the worker, in the order a person would ask."""
    if not offer.online:
        since = offer.offline_since.isoformat() if offer.offline_since else None
        sentence = f"{offer.name} is offline." if since else f"{offer.name} has not reported yet."
        return Refusal("worker_offline", sentence, facts={"since": since})
    if not offer.local and not offer.remote_enabled:
        return Refusal("gpu_workers_disabled", "GPU workers are switched off on this server.")
    if offer.scheduling == "disabled":
        return Refusal("worker_disabled", f"{offer.name} is disabled: it takes no jobs.")
    if offer.scheduling == "draining":
        return Refusal("worker_draining", f"{offer.name} is draining: it takes no new jobs.")
    if not offer.accepting:
        because = f": {offer.paused_reason}" if offer.paused_reason else ""
        return Refusal("worker_paused", f"{offer.name} is paused by its owner{because}.")
    if mode == "service" and not offer.gateway_ok:
        because = offer.gateway_detail or "it has not been reached yet"
        return Refusal("gateway_unreachable", f"The gateway of {offer.name} is not reachable: {because}.")
    return None


def _full(offer: WorkerOffer, what: str) -> Refusal:
    return Refusal("worker_full", f"{offer.name} runs as many {what} jobs as it may.", facts={"what": what})


def _place_on_gpus(offer: WorkerOffer, spec: RequirementSpec) -> Placement | Refusal:
    refusals = {gpu.uuid: _whole_gpu_refusal(offer, gpu, spec) for gpu in offer.gpus}
    free = [gpu for gpu in offer.gpus if refusals[gpu.uuid] is None]
    if len(free) >= spec.gpu_count:
        if offer.free_gpu_slots < 1:
            return _full(offer, "GPU")
        # Best fit: the smallest cards that do, so that the large ones stay free for who needs them.
        chosen = sorted(free, key=lambda gpu: (gpu.total_mib, gpu.index, gpu.uuid))[: spec.gpu_count]
        return Placement(tuple(chosen))
    per_gpu = tuple(refusal for refusal in refusals.values() if refusal)
    could = [gpu for gpu in offer.gpus if _never(gpu, spec) is None]
    if len(could) < spec.gpu_count:
        return Refusal(
            "too_few_gpus",
            f"{offer.name} has {len(could)} suitable GPUs; {spec.gpu_count} are needed.",
            never=True,
            facts={"suitable": len(could), "needed": spec.gpu_count},
            per_gpu=per_gpu,
        )
    sentence = per_gpu[0].sentence if len(per_gpu) == 1 else f"No GPU of {offer.name} is free enough."
    return Refusal("gpus_busy", sentence, per_gpu=per_gpu)


def _whole_gpu_refusal(offer: WorkerOffer, gpu: GpuOffer, spec: RequirementSpec) -> GpuRefusal | None:
    """Why this GPU cannot be given as a whole now, or None."""
    where = f"{offer.name} / {gpu.model}"
    never = _never(gpu, spec)
    if never:
        return GpuRefusal(gpu, never[0], f"{where}: {never[1]}")
    if gpu.simulated and not offer.simulated_allowed:
        return GpuRefusal(gpu, "gpu_simulated", f"{where}: it is simulated, and this server takes real ones only")
    if not gpu.present:
        return GpuRefusal(gpu, "gpu_gone", f"{where}: the driver does not list it any more")
    if not gpu.healthy:
        return GpuRefusal(gpu, "gpu_unhealthy", f"{where}: {gpu.error or 'it does not answer'}")
    if gpu.reserved:
        holders = ", ".join(sorted({held.name or "a job" for held in gpu.reserved}))
        return GpuRefusal(gpu, "gpu_reserved", f"{where}: reserved for {holders}", {"holders": holders})
    if gpu.foreign_mib > max(IDLE_FOREIGN_MIB, IDLE_FOREIGN_SHARE * gpu.total_mib):
        return GpuRefusal(gpu, "gpu_foreign_use", f"{where}: {_foreign_sentence(gpu)}", _foreign_facts(gpu))
    return None


def _never(gpu: GpuOffer, spec: RequirementSpec) -> tuple[str, str] | None:
    if gpu.mig:
        return "gpu_mig", "it is split into MIG instances"
    if spec.vram_mib is not None and gpu.total_mib < spec.vram_mib:
        return "gpu_too_small", f"it has {gigabytes(gpu.total_mib)}, {gigabytes(spec.vram_mib)} are needed"
    return None


def _foreign_facts(gpu: GpuOffer) -> dict[str, Any]:
    free = gpu.total_mib - gpu.foreign_mib if gpu.free_mib is None else gpu.free_mib
    names = ", ".join(f"{name} (pid {pid})" for pid, name, _ in gpu.foreign[:3])
    return {"free_mib": free, "total_mib": gpu.total_mib, "foreign_mib": gpu.foreign_mib, "processes": names}


def _foreign_sentence(gpu: GpuOffer) -> str:
    facts = _foreign_facts(gpu)
    free, total, foreign = (gigabytes(facts[key]) for key in ("free_mib", "total_mib", "foreign_mib"))
    processes = f": {facts['processes']}" if facts["processes"] else ""
    return f"{free[:-3]} of {total} free, {foreign} used by processes that are not ours{processes}"


def gigabytes(mib: int) -> str:
    """MiB as people read a card's memory: 24,564 MiB is "24.0 GB"."""
    return f"{mib / 1024:.1f} GB"
