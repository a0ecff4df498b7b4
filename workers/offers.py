"""Describes workers to the scheduler: the provider of `jobs.offers`. One query per table, however many workers."""

from __future__ import annotations

import itertools
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from django.conf import settings
from django.db import connection

from jobs.clock import now_and_up_since
from jobs.models import Lease, Requirement, Reservation
from jobs.scheduling import GpuOffer, Held, WorkerOffer
from jobs.switch import remote_workers_enabled
from workers.models import GOOD_REPORTS, Gpu, Worker

# What a worker says of itself where nobody can tell which of its processes uses how much of a GPU: Windows drives the
# card (WSL2), or the worker does not see the processes of the machine.
_UNMEASURABLE = frozenset({"wsl2", "no_host_pids"})


class _Clock(NamedTuple):
    now: datetime
    up_since: datetime


def offers_for(worker_ids: list[uuid.UUID] | None, *, rows: Sequence[Worker] | None = None) -> list[WorkerOffer]:
    """What these workers (None: all that are not revoked) offer now, in the order of their names.

    `rows` are their rows where the caller has read them already.
    """
    chosen = Worker.objects.filter(revoked_at=None) if worker_ids is None else Worker.objects.filter(pk__in=worker_ids)
    workers = list(chosen if rows is None else rows)
    clock = _Clock(*now_and_up_since())
    ids = [worker.pk for worker in workers]
    taken = _slots_taken(ids)
    gpus = _gpu_offers(workers, clock, claiming=rows is not None)
    remote = remote_workers_enabled()
    return [_offer(worker, gpus.get(worker.pk, []), taken, clock, remote_enabled=remote) for worker in workers]


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


def _offer(
    worker: Worker,
    gpus: Iterable[GpuOffer],
    taken: Mapping[tuple[uuid.UUID, str], int],
    clock: _Clock,
    *,
    remote_enabled: bool,
) -> WorkerOffer:
    online = worker.is_online(now=clock.now, up_since=clock.up_since)
    return WorkerOffer(
        worker_id=worker.pk,
        name=worker.name,
        local=worker.local,
        online=online,
        revoked=worker.revoked_at is not None,
        scheduling=worker.scheduling,
        accepting=worker.accepting,
        paused_reason=worker.paused_reason,
        gateway_ok=bool(worker.gateway_url) and worker.gateway_status == Worker.Gateway.OK,
        gateway_detail=gateway_sentence(worker),
        features=frozenset(worker.features),
        free_gpu_slots=max(0, worker.max_gpu_jobs - taken[worker.pk, Requirement.Kind.GPU]),
        free_cpu_slots=max(0, worker.max_cpu_jobs - taken[worker.pk, Requirement.Kind.CPU]),
        gpus=tuple(gpus),
        offline_since=None if online else worker.last_seen_at,
        gpu_slots=worker.max_gpu_jobs,
        cpu_slots=worker.max_cpu_jobs,
        remote_enabled=remote_enabled,
        simulated_allowed=settings.OPENFACE_ALLOW_SIMULATED_GPUS,
    )


def _slots_taken(ids: list[uuid.UUID]) -> Counter[tuple[uuid.UUID, str]]:
    """Uncleared leases by worker and kind: a slot is free when the worker says that nothing is left in it."""
    rows = Lease.objects.filter(worker__in=ids, cleared_at=None).values_list("worker_id", "job__requirement__kind")
    return Counter(rows)


def _gpu_offers(workers: Sequence[Worker], clock: _Clock, *, claiming: bool) -> dict[uuid.UUID, list[GpuOffer]]:
    by_id = {worker.pk: worker for worker in workers}
    gpus = list(Gpu.objects.filter(worker__in=by_id))
    if not gpus:
        return {}
    reporters = _reporters(gpus, clock)
    twins = sorted(gpu_uuid for gpu_uuid, reports in reporters.items() if len(reports) > 1)
    if claiming and twins:
        _lock_cards(twins)
    held = _held({row.pk: row for row in (*gpus, *itertools.chain(*reporters.values()))}.values())
    offers: dict[uuid.UUID, list[GpuOffer]] = defaultdict(list)
    for gpu in gpus:
        worker = by_id[gpu.worker_id]
        offers[worker.pk].append(_gpu_offer(gpu, worker, held[gpu.uuid], reporters[gpu.uuid]))
    return offers


def _reporters(gpus: Iterable[Gpu], clock: _Clock) -> dict[str, list[Gpu]]:
    """Who reports these cards now, by UUID, heard last at the end.

    More than one means a cloned disk, two workers on one machine, or a card that was moved.
    """
    rows = Gpu.objects.filter(uuid__in={gpu.uuid for gpu in gpus}, present=True, worker__revoked_at=None)
    reporters: dict[str, list[Gpu]] = defaultdict(list)
    for row in sorted(rows.select_related("worker"), key=lambda row: row.reported_at or clock.up_since):
        if row.worker.is_online(**clock._asdict()):
            reporters[row.uuid].append(row)
    return reporters


def _lock_cards(uuids: Sequence[str]) -> None:
    """Let the claims of two workers that report the same cards look at them one after the other.

    Their workers' rows are two, so nothing else keeps both from seeing the card free at once. Until the transaction
    ends; what the other one reserved is seen by the statements after this one.
    """
    with connection.cursor() as cursor:
        for gpu_uuid in uuids:
            cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"gpu {gpu_uuid}"])


def _gpu_offer(gpu: Gpu, worker: Worker, held: Sequence[Held], reporters: Sequence[Gpu]) -> GpuOffer:
    last = reporters[-1].worker if reporters else worker
    foreign = _foreign(gpu, held)
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
        reserved=tuple(held),
        foreign_mib=sum(mib for _, _, mib in foreign),
        foreign=foreign,
        measurable=_UNMEASURABLE.isdisjoint(worker.features) and all(mib is not None for mib in uses),
        elsewhere=last.name if last.pk != worker.pk else "",
        also_at=tuple(sorted(row.worker.name for row in reporters if row.worker_id != worker.pk)),
        margin_mib=settings.OPENFACE_VRAM_MARGIN_MIB,
    )


def _held(gpus: Iterable[Gpu]) -> dict[str, list[Held]]:
    """What our leases hold on these cards, by UUID: one card is never given twice, whoever reports it."""
    rows_by_id = {gpu.pk: gpu for gpu in gpus}
    held: dict[str, list[Held]] = defaultdict(list)
    rows = Reservation.objects.filter(gpu__in=rows_by_id, cleared_at=None).select_related("lease__job").order_by("id")
    for row in rows:
        gpu, job = rows_by_id[row.gpu_id], row.lease.job
        used = next((entry.get("mib") for entry in gpu.ours if entry.get("lease") == str(row.lease_id)), None)
        held[gpu.uuid].append(Held(row.lease_id, row.mib, row.exclusive, used_mib=used, name=f"{job.owner}/{job.repo}"))
    return held


def _foreign(gpu: Gpu, held: Sequence[Held]) -> tuple[tuple[int, str, int], ...]:
    """Whose use is not ours: other processes, and containers of leases for which nothing is reserved there.

    Such a lease is one that this control plane does not know (a restored database): its container is on hold.
    """
    reserved = {str(each.lease_id) for each in held}
    others = [(entry.get("pid") or 0, entry.get("name") or "a process", entry.get("mib") or 0) for entry in gpu.foreign]
    strays = [entry.get("mib") or 0 for entry in gpu.ours if entry.get("lease") not in reserved]
    return (*others, *((0, "a container on hold", mib) for mib in strays))
