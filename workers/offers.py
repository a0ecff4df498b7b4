"""Describes workers to the scheduler: the provider of `jobs.offers`. Three queries, however many workers."""

from __future__ import annotations

import uuid
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.models import F, FilteredRelation, Q

from jobs import books
from jobs.books import Books
from jobs.models import Requirement
from jobs.scheduling import GpuOffer, Held, WorkerOffer
from jobs.vram import LEFT_BEHIND, ON_HOLD
from workers import held, refusals, unreleased
from workers.models import GOOD_REPORTS, Gpu, Worker

# What a worker says of itself where nobody can tell which of its processes uses how much of a GPU: Windows drives the
# card (WSL2), or the worker does not see the processes of the machine.
_UNMEASURABLE = frozenset({"wsl2", "no_host_pids"})


def offers_for(worker_ids: list[uuid.UUID] | None, *, rows: Sequence[Worker] | None = None) -> list[WorkerOffer]:
    """What these workers (None: all that are not revoked) offer now, in the order of their names.

    `rows` are their rows where the caller has read them already.
    """
    chosen = Worker.objects.filter(revoked_at=None) if worker_ids is None else Worker.objects.filter(pk__in=worker_ids)
    workers = list(chosen if rows is None else rows)
    entries = books.read([worker.pk for worker in workers])
    gpus, on_gpus = _gpu_offers(workers, entries, claiming=rows is not None)
    return [_offer(worker, gpus[worker.pk], entries, on_gpus[worker.pk]) for worker in workers]


def gateway_sentence(worker: Worker) -> str:
    """Why the worker's gateway does not serve, as a part of a sentence; "" where it does."""
    match worker.gateway_status:
        case Worker.Gateway.OK:
            return ""
        case Worker.Gateway.PROPOSED:
            return f"its address {worker.gateway_proposed_url} waits for an operator's approval"
        case _ if worker.gateway_detail:
            return worker.gateway_detail.rstrip(".")
        case _ if not worker.gateway_url:
            return "it has no gateway address: set WORKER_PUBLIC_URL on it"
        case Worker.Gateway.REFUSED:
            return f"{worker.gateway_url} refuses connections from the control plane"
        case Worker.Gateway.TIMEOUT:
            return f"{worker.gateway_url} does not answer the control plane"
        case _:
            return "it has not been reached yet"


def _offer(worker: Worker, gpus: Iterable[GpuOffer], entries: Books, on_gpus: set[str]) -> WorkerOffer:
    """`on_gpus`: the leases whose processes the worker sees on its GPUs.

    A container on hold takes a place too, as the worker counts: of a GPU job where it was given a GPU, or uses one.
    """
    online = worker.is_online(now=entries.now, up_since=entries.up_since)
    strays, using = held.taking_places(worker), held.of_gpus(worker, on_gpus)
    taken = Counter({kind: entries.taken[worker.pk, kind] for kind in Requirement.Kind})
    taken += Counter({Requirement.Kind.GPU: len(using), Requirement.Kind.CPU: len(strays - using)})
    return WorkerOffer(
        worker_id=worker.pk,
        name=worker.name,
        local=worker.local,
        online=online,
        revoked=worker.revoked_at is not None,
        scheduling=worker.scheduling,
        accepting=worker.accepting,
        paused_reason=worker.paused_reason,
        gpu_paused_reason=worker.gpu_paused_reason,
        refused=worker.refused_since is not None,
        refused_detail=refusals.told(worker),
        gateway_ok=bool(worker.gateway_url) and worker.gateway_status == Worker.Gateway.OK,
        gateway_detail=gateway_sentence(worker),
        features=frozenset(worker.features),
        cuda_version=str(worker.capabilities.get("cuda_version") or ""),
        free_gpu_slots=max(0, worker.max_gpu_jobs - taken[Requirement.Kind.GPU]),
        free_cpu_slots=max(0, worker.max_cpu_jobs - taken[Requirement.Kind.CPU]),
        gpus=tuple(gpus),
        offline_since=None if online else worker.last_seen_at,
        gpu_slots=worker.max_gpu_jobs,
        cpu_slots=worker.max_cpu_jobs,
        remote_enabled=entries.remote_enabled,
        simulated_allowed=entries.simulated_allowed,
    )


@dataclass
class _Card:
    """One physical card: what our leases hold on it, whoever reports it, and who reports it now, heard last at the end.

    More than one reporter means a cloned disk, two workers on one machine, or a card that was moved. What is held is
    held by all of them: one card is never given twice.
    """

    held: list[Held] = field(default_factory=list)
    reporters: list[Gpu] = field(default_factory=list)
    on_hold: bool = False


def _gpu_offers(
    workers: Sequence[Worker], entries: Books, *, claiming: bool
) -> tuple[dict[uuid.UUID, list[GpuOffer]], dict[uuid.UUID, set[str]]]:
    """What each worker's GPUs offer, and which leases use any of them."""
    by_id = {worker.pk: worker for worker in workers}
    gpus, cards = _look(by_id, entries)
    twins = sorted(gpu_uuid for gpu_uuid, card in cards.items() if len(card.reporters) > 1)
    if claiming and twins:
        _lock_cards(twins)
        gpus, cards = _look(by_id, entries)  # a statement after the lock: it sees what the other one reserved
    offers: dict[uuid.UUID, list[GpuOffer]] = defaultdict(list)
    leases: dict[uuid.UUID, set[str]] = defaultdict(set)
    for gpu in gpus:
        worker, card = by_id[gpu.worker_id], cards[gpu.uuid]
        offers[worker.pk].append(_gpu_offer(gpu, worker, card))
        leases[worker.pk].update(str(entry.get("lease")) for entry in gpu.ours)
    return offers, leases


def _look(worker_ids: Collection[uuid.UUID], entries: Books) -> tuple[list[Gpu], dict[str, _Card]]:
    """The GPUs of these workers, in order, and what is known of each card. One query."""
    theirs = Gpu.objects.filter(worker__in=worker_ids)
    rows = (
        Gpu.objects.filter(uuid__in=theirs.values("uuid"), forgotten_at=None)
        .select_related("worker")
        .defer(*_NOT_NEEDED)
    )
    uncleared = FilteredRelation("reservations", condition=Q(reservations__cleared_at=None))
    every: Iterable[Any] = rows.annotate(held=uncleared, **_HELD).order_by("index", "uuid", "held__id")
    gpus: dict[int, Gpu] = {}
    reserved: dict[int, list[Held]] = defaultdict(list)
    for row in every:  # one for each reservation, or one without any
        gpu = gpus.setdefault(row.pk, row)
        if row.held_mib is not None:
            reserved[gpu.pk].append(_held(gpu, row))
    cards: dict[str, _Card] = defaultdict(_Card)
    for gpu in sorted(gpus.values(), key=lambda gpu: gpu.reported_at or entries.up_since):
        reports = gpu.present and gpu.worker.is_online(now=entries.now, up_since=entries.up_since)
        if reports:
            cards[gpu.uuid].reporters.append(gpu)
        if reports or gpu.worker_id in worker_ids:
            cards[gpu.uuid].held += reserved[gpu.pk]
            cards[gpu.uuid].on_hold |= gpu.uuid in held.gpus_on_hold(gpu.worker)
    return [gpu for gpu in gpus.values() if gpu.worker_id in worker_ids], cards


# What is read with each GPU of its uncleared reservations: one row for each.
_HELD = {
    "held_lease": F("held__lease_id"),
    "held_mib": F("held__mib"),
    "held_exclusive": F("held__exclusive"),
    "held_owner": F("held__lease__job__owner"),
    "held_repo": F("held__lease__job__repo"),
}
_NOT_NEEDED = ("worker__capabilities", "worker__disk", "worker__doctor", "worker__inventory")


def _held(gpu: Gpu, row: Any) -> Held:
    used = next((entry.get("mib") for entry in gpu.ours if entry.get("lease") == str(row.held_lease)), None)
    name = f"{row.held_owner}/{row.held_repo}"
    return Held(row.held_lease, row.held_mib, row.held_exclusive, used_mib=used, name=name)


def _lock_cards(uuids: Sequence[str]) -> None:
    """Let the claims of two workers that report the same cards look at them one after the other.

    Their workers' rows are two, so nothing else keeps both from seeing the card free at once. Until the transaction
    ends; what the other one reserved is seen by the statements after this one.
    """
    with connection.cursor() as cursor:
        for gpu_uuid in uuids:
            cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"gpu {gpu_uuid}"])


def _gpu_offer(gpu: Gpu, worker: Worker, card: _Card) -> GpuOffer:
    last = card.reporters[-1].worker if card.reporters else worker
    foreign = _foreign(gpu, worker, card.held)
    uses = (entry.get("mib") for entry in (*gpu.ours, *gpu.foreign))
    return GpuOffer(
        gpu_id=gpu.pk,
        uuid=gpu.uuid,
        index=gpu.index,
        model=gpu.model or "GPU",
        total_mib=gpu.total_vram_mib,
        free_mib=gpu.free_vram_mib,
        healthy=gpu.healthy,
        error=gpu.error,
        good_reports_missing=max(0, GOOD_REPORTS - gpu.good_reports),
        mig=gpu.mig,
        simulated=gpu.simulated,
        present=gpu.present,
        reserved=tuple(card.held),
        foreign_mib=sum(mib for _, _, mib in foreign),
        foreign=foreign,
        measurable=_UNMEASURABLE.isdisjoint(worker.features) and all(mib is not None for mib in uses),
        elsewhere=last.name if last.pk != worker.pk else "",
        doubts=tuple((doubt["code"], doubt["mib"]) for doubt in gpu.doubts),
        also_at=tuple(sorted(row.worker.name for row in card.reporters if row.worker_id != worker.pk)),
        margin_mib=settings.OPENFACE_VRAM_MARGIN_MIB,
        on_hold=card.on_hold,
    )


def _foreign(gpu: Gpu, worker: Worker, held: Sequence[Held]) -> tuple[tuple[int, str, int], ...]:
    """Whose use is not ours: other processes, and containers of leases for which nothing is reserved there.

    Such a lease is one that this control plane does not know (a restored database): its container is on hold. Or it
    is over, and an operator has freed its GPUs although the memory is not released.
    """
    reserved, over = {str(each.lease_id) for each in held}, unreleased.freed(worker)
    others = [(entry.get("pid") or 0, entry.get("name") or "a process", entry.get("mib") or 0) for entry in gpu.foreign]
    strays = [
        (0, LEFT_BEHIND if entry.get("lease") in over else ON_HOLD, entry.get("mib") or 0)
        for entry in gpu.ours
        if entry.get("lease") not in reserved
    ]
    return (*others, *strays)
