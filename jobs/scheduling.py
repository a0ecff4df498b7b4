"""May this worker take this kind of job, and if not, why not. Pure: plain data in, a placement or a refusal out.

The claim and every "why is it waiting?" ask the same function, so that the two can never disagree.
Sizes are MiB. The arithmetic of one GPU is in `jobs.vram`.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from jobs import cuda, vram
from jobs.vram import GpuOffer, Held, Obstacle, Share, gigabytes, needed_memory

__all__ = [
    "GpuOffer",
    "GpuRefusal",
    "Held",
    "Placement",
    "Refusal",
    "RequirementSpec",
    "Share",
    "WorkerOffer",
    "could_if_empty",
    "fits",
    "gigabytes",
]

Kind = Literal["cpu", "gpu"]


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
    refused: bool = False  # its reports are refused as invalid: it is alive, and nothing that it says is known
    refused_detail: str = ""
    gpu_paused_reason: str = ""  # why it takes no GPU jobs now, while it takes others
    gateway_ok: bool = True
    gateway_detail: str = ""
    features: frozenset[str] = frozenset()
    cuda_version: str = ""  # of the driver; "" where it is not known
    free_gpu_slots: int = 0
    free_cpu_slots: int = 0
    gpus: tuple[GpuOffer, ...] = ()
    offline_since: datetime | None = None
    remote_enabled: bool = True
    simulated_allowed: bool = False
    # How many it may run at once, where known; what is free of them is above.
    gpu_slots: int = 0
    cpu_slots: int = 0


@dataclass(frozen=True)
class Placement:
    """It fits, with these shares of GPUs (none for a CPU job)."""

    shares: tuple[Share, ...] = ()

    @property
    def gpus(self) -> tuple[GpuOffer, ...]:
        return tuple(share.gpu for share in self.shares)


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
    # What waiting cannot change is said first: nobody should wait for a worker that will not do when it is back.
    refusal = _not_this_worker(offer, spec) or _too_few_gpus(offer, spec) or _not_now(offer, mode=mode)
    if refusal:
        return refusal
    if spec.kind == "cpu":
        return Placement() if offer.free_cpu_slots > 0 else _full(offer, "CPU")
    return _place_on_gpus(offer, spec)


def could_if_empty(offer: WorkerOffer, spec: RequirementSpec, *, mode: str) -> bool:
    """Whether it would fit if nothing of ours were on the worker: what others use, health and standing stay."""
    empty = dataclasses.replace(
        offer,
        free_gpu_slots=max(offer.free_gpu_slots, offer.gpu_slots),
        free_cpu_slots=max(offer.free_cpu_slots, offer.cpu_slots),
        gpus=tuple(vram.emptied(gpu) for gpu in offer.gpus),
    )
    return isinstance(fits(empty, spec, mode=mode), Placement)


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
    known = offer.online or offer.offline_since is not None  # before its first report, nobody knows what it takes
    if known and spec.kind == "gpu" and max(offer.gpu_slots, offer.free_gpu_slots) < 1:
        return Refusal("no_gpu_jobs", f"{offer.name} takes no GPU jobs.", never=True)
    if known and spec.kind == "cpu" and max(offer.cpu_slots, offer.free_cpu_slots) < 1:
        return Refusal("no_cpu_jobs", f"{offer.name} takes no CPU jobs.", never=True)
    least = cuda.least(spec.features)
    if least is not None and cuda.is_older(offer.cuda_version, least):
        return Refusal(
            "cuda_too_old",
            f"{offer.name} has CUDA {offer.cuda_version}; {least} is needed.",
            never=True,
            facts={"has": offer.cuda_version, "needed": least},
        )
    missing = sorted(cuda.without(spec.features) - offer.features)
    if missing:
        names = ", ".join(missing)
        return Refusal("feature_missing", f"{offer.name} does not offer {names}.", never=True, facts={"missing": names})
    return None


def _too_few_gpus(offer: WorkerOffer, spec: RequirementSpec) -> Refusal | None:
    """Whether too few of its GPUs could ever do. One that is gone or broken could: it may come back."""
    if spec.kind != "gpu":
        return None
    suitable = sum(_never(gpu, spec) is None for gpu in offer.gpus)
    if suitable >= spec.gpu_count:
        return None
    return Refusal(
        "too_few_gpus",
        f"{offer.name} has {suitable} suitable GPUs; {spec.gpu_count} are needed.",
        never=True,
        facts={"suitable": suitable, "needed": spec.gpu_count},
        per_gpu=_refusals([(gpu, _share_of(offer, gpu, spec)) for gpu in offer.gpus], offer, spec),
    )


def _not_now(offer: WorkerOffer, *, mode: str) -> Refusal | None:
    """Standing of the worker, in the order a person would ask."""
    if not offer.online:
        since = offer.offline_since.isoformat() if offer.offline_since else None
        sentence = f"{offer.name} is offline." if since else f"{offer.name} has not reported yet."
        return Refusal("worker_offline", sentence, facts={"since": since})
    if not offer.local and not offer.remote_enabled:
        return Refusal("gpu_workers_disabled", "GPU workers are switched off on this server.")
    if offer.refused:
        because = f": {offer.refused_detail}" if offer.refused_detail else ""
        return Refusal("reports_refused", f"The reports of {offer.name} are refused as invalid{because}.")
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
    if offer.gpu_paused_reason:
        return Refusal("gpu_jobs_paused", f"{offer.name} takes no GPU jobs now: {offer.gpu_paused_reason}")
    found = [(gpu, _share_of(offer, gpu, spec)) for gpu in offer.gpus]
    shares = [each for _, each in found if isinstance(each, Share)]
    if len(shares) >= spec.gpu_count:
        if offer.free_gpu_slots < 1:
            return _full(offer, "GPU")
        return Placement(tuple(sorted(shares, key=_best_fit)[: spec.gpu_count]))
    per_gpu = _refusals(found, offer, spec)
    sentence = per_gpu[0].sentence if len(per_gpu) == 1 else f"No GPU of {offer.name} is free enough."
    return Refusal("gpus_busy", sentence, per_gpu=per_gpu)


def _refusals(
    found: Iterable[tuple[GpuOffer, Share | Obstacle]], offer: WorkerOffer, spec: RequirementSpec
) -> tuple[GpuRefusal, ...]:
    return tuple(_gpu_refusal(offer, gpu, each, spec) for gpu, each in found if isinstance(each, Obstacle))


def _best_fit(share: Share) -> tuple[int, int, int, str]:
    """Where least is left for others comes first: large cards and large gaps stay free for who needs them."""
    return vram.left_after(share), share.gpu.total_mib, share.gpu.index, share.gpu.uuid


def _share_of(offer: WorkerOffer, gpu: GpuOffer, spec: RequirementSpec) -> Share | Obstacle:
    """What the job would get of this GPU now, or what is in its way."""
    never = _never(gpu, spec)
    if never is not None:
        return never
    if gpu.simulated and not offer.simulated_allowed:
        return Obstacle("gpu_simulated")
    if not gpu.present:
        return Obstacle("gpu_gone")
    if gpu.elsewhere:
        return Obstacle("gpu_elsewhere", {"other": gpu.elsewhere})
    if not gpu.healthy:
        return Obstacle("gpu_unhealthy", {"error": gpu.error})
    if gpu.good_reports_missing:
        return Obstacle("gpu_recovering", {"missing": gpu.good_reports_missing})
    return vram.share_of(gpu, spec.vram_mib, whole=spec.exclusive)


def _never(gpu: GpuOffer, spec: RequirementSpec) -> Obstacle | None:
    """What waiting does not change about a GPU."""
    return Obstacle("gpu_mig", never=True) if gpu.mig else vram.never_enough(gpu, spec.vram_mib)


def _gpu_refusal(offer: WorkerOffer, gpu: GpuOffer, obstacle: Obstacle, spec: RequirementSpec) -> GpuRefusal:
    facts = {**_facts(gpu, spec), **obstacle.facts}
    return GpuRefusal(gpu, obstacle.code, f"{offer.name} / {gpu.model}: {_sentence(obstacle.code, facts)}", facts)


def _facts(gpu: GpuOffer, spec: RequirementSpec) -> dict[str, Any]:
    """The figures of a refusal; sizes in MiB."""
    foreign = vram.foreign_mib(gpu)
    names = ", ".join(f"{name} (pid {pid})" if pid else name for pid, name, _ in gpu.foreign[:3])
    return {
        "total_mib": gpu.total_mib,
        "free_mib": max(0, gpu.total_mib - foreign) if gpu.free_mib is None else gpu.free_mib,
        "foreign_mib": foreign,
        "processes": names,
        "reserved_mib": vram.reserved_mib(gpu),
        "available_mib": vram.available_mib(gpu),
        "needed_mib": spec.vram_mib,
        "holders": ", ".join(sorted({held.name or "a job" for held in gpu.reserved})),
    }


def _sentence(code: str, facts: dict[str, Any]) -> str:
    """Why one GPU cannot be given, in English and without its name."""
    total, free, foreign = (gigabytes(facts[key]) for key in ("total_mib", "free_mib", "foreign_mib"))
    needed = needed_memory(facts["needed_mib"] or 0)
    match code:
        case "gpu_mig":
            return "it is split into MIG instances"
        case "gpu_too_small":
            return f"it has {total}, {needed} are needed"
        case "gpu_size_unknown":
            return f"its driver does not tell how much memory it has, {needed} are needed"
        case "gpu_simulated":
            return "it is simulated, and this server takes real ones only"
        case "gpu_gone":
            return "the driver does not list it any more"
        case "gpu_elsewhere":
            return f"{facts['other']} has reported the same GPU since"
        case "gpu_unhealthy":
            return str(facts["error"] or "it does not answer")
        case "gpu_recovering":
            return f"it failed a moment ago, and is used again after {facts['missing']} more good reports"
        case "gpu_on_hold":
            return "a container of a lease that nobody here knows was given it, and is on hold"
        case "gpu_reserved":
            return f"reserved for {facts['holders']}"
        case "gpu_unmeasured":
            whole = "it is given as a whole, for what each job uses cannot be measured there"
            return f"{whole}: reserved for {facts['holders']}"
        case "gpu_vram_reserved":
            available, reserved = gigabytes(facts["available_mib"]), gigabytes(facts["reserved_mib"])
            return f"{available[:-3]} of {total} available, {needed} needed; {reserved} reserved for {facts['holders']}"
        case _:
            processes = f": {facts['processes']}" if facts["processes"] else ""
            return f"{free[:-3]} of {total} free, {foreign} used by processes that are not ours{processes}"
