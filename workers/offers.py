"""Describes workers to the scheduler: the provider of `jobs.offers`. One query per table, however many workers."""

from __future__ import annotations

import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.conf import settings

from jobs.clock import now_and_up_since
from jobs.models import Lease, Requirement, Reservation
from jobs.scheduling import GpuOffer, Held, WorkerOffer
from jobs.switch import remote_workers_enabled
from workers.models import Gpu, Worker


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
    gpus = _gpu_offers(ids, clock)
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
        remote_enabled=remote_enabled,
        simulated_allowed=settings.OPENFACE_ALLOW_SIMULATED_GPUS,
    )


def _slots_taken(ids: list[uuid.UUID]) -> Counter[tuple[uuid.UUID, str]]:
    """Uncleared leases by worker and kind: a slot is free when the worker says that nothing is left in it."""
    rows = Lease.objects.filter(worker__in=ids, cleared_at=None).values_list("worker_id", "job__requirement__kind")
    return Counter(rows)


def _gpu_offers(ids: list[uuid.UUID], clock: _Clock) -> dict[uuid.UUID, list[GpuOffer]]:
    gpus = list(Gpu.objects.filter(worker__in=ids))
    if not gpus:
        return {}
    # The same card at another worker: a cloned disk, two workers on one machine, or a card that was moved.
    rows = Gpu.objects.filter(uuid__in={gpu.uuid for gpu in gpus}, present=True, worker__revoked_at=None)
    reports = [row for row in rows.select_related("worker") if row.worker.is_online(**clock._asdict())]
    heard_last = {row.uuid: row.worker for row in sorted(reports, key=lambda row: row.reported_at or clock.up_since)}
    held = _held({row.pk: row for row in (*gpus, *reports)}.values())
    offers: dict[uuid.UUID, list[GpuOffer]] = defaultdict(list)
    for gpu in gpus:
        last = heard_last.get(gpu.uuid)
        elsewhere = last is not None and last.pk != gpu.worker_id
        foreign = tuple(_process(entry) for entry in gpu.foreign)
        offers[gpu.worker_id].append(
            GpuOffer(
                gpu_id=gpu.pk,
                uuid=gpu.uuid,
                index=gpu.index,
                model=gpu.model or "GPU",
                total_mib=gpu.total_vram_mib,
                free_mib=gpu.free_vram_mib,
                healthy=gpu.healthy and not elsewhere,
                error=f"{last.name} reports the same GPU since" if last and elsewhere else gpu.error,
                mig=gpu.mig,
                simulated=gpu.simulated,
                present=gpu.present,
                reserved=tuple(held[gpu.uuid]),
                foreign_mib=sum(mib for _, _, mib in foreign),
                foreign=foreign,
            )
        )
    return offers


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


def _process(entry: dict[str, Any]) -> tuple[int, str, int]:
    return entry.get("pid") or 0, entry.get("name") or "a process", entry.get("mib") or 0
