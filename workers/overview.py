"""The fleet as people and programs look at it: one read for the fleet page, the commands and the operators' API."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from jobs import offers, vram
from jobs.clock import now_and_up_since
from jobs.scheduling import GpuOffer
from jobs.switch import remote_workers_enabled
from spaces import delivering
from workers import held, refusals, unreleased
from workers.held import Held
from workers.inventory import Drain, Left, drain_of, left_on
from workers.models import Gpu, Worker


@dataclass(frozen=True)
class GpuLine:
    """One GPU: what its worker last measured, and what is reserved on it."""

    row: Gpu
    offer: GpuOffer


@dataclass(frozen=True)
class WorkerLine:
    """One worker with all that is shown of it.

    `look`: online, refused, draining, disabled, paused, offline, new or revoked.
    """

    worker: Worker
    online: bool
    left: tuple[Left, ...] = field(default=())  # what it has: leases not cleared, and what else its report lists
    gpus: tuple[GpuLine, ...] = field(default=())
    gone: tuple[Gpu, ...] = field(default=())  # GPUs that it does not list any more, with nothing reserved there
    held: tuple[Held, ...] = field(default=())  # containers of leases that nobody here knows
    twins: tuple[str, ...] = field(default=())  # other workers that report the same machine: a cloned disk

    @property
    def jobs(self) -> int:
        """How many leases it has not cleared: each takes a place, whatever became of it."""
        return len(self.names)

    @property
    def names(self) -> tuple[str, ...]:
        """The owner/repo of those leases."""
        return tuple(left.name for left in self.left if left.on_the_books)

    @property
    def drain(self) -> Drain | None:
        """How far its draining is; None where it is open."""
        return drain_of(self.worker, self.left, online=self.online)

    @property
    def max_jobs(self) -> int:
        return self.worker.max_gpu_jobs + self.worker.max_cpu_jobs

    @property
    def look(self) -> str:
        worker = self.worker
        if worker.revoked_at is not None:
            return "revoked"
        if not self.online:
            return "new" if worker.last_seen_at is None else "offline"
        if worker.refused_since is not None:
            return "refused"
        if worker.scheduling != Worker.Scheduling.OPEN:
            return str(worker.scheduling)
        return "online" if worker.accepting else "paused"

    @property
    def drained(self) -> bool:
        """Draining is complete: it was heard just now, and has nothing left, containers that still stop included."""
        return self.drain is not None and self.drain.complete is True


@dataclass(frozen=True)
class Fleet:
    """All workers, those that need a look first, and the time by which they were judged."""

    now: datetime
    lines: list[WorkerLine]
    remote_enabled: bool = True  # whether workers that are not local take part (`jobs.switch`)


# What needs a look comes first.
_TROUBLE_FIRST = ("offline", "refused", "disabled", "draining", "paused", "new", "online", "revoked")


def fleet(*, with_revoked: bool = False) -> Fleet:
    """Read the fleet. A fixed number of queries, however many workers."""
    kept = Worker.objects.kept()  # who is forgotten is in no list
    return _looked_at(list(kept if with_revoked else kept.filter(revoked_at=None)))


def line_of(worker: Worker) -> tuple[WorkerLine, datetime]:
    """One worker as the fleet shows it, and the time by which it was judged."""
    seen = _looked_at([worker])
    return seen.lines[0], seen.now


def _looked_at(workers: list[Worker]) -> Fleet:
    now, up_since = now_and_up_since()
    ids = [worker.pk for worker in workers]
    by_uuid: dict[Any, dict[str, GpuOffer]] = {
        offer.worker_id: {gpu.uuid: gpu for gpu in offer.gpus} for offer in offers.offers_for(ids)
    }
    gpus: dict[Any, list[GpuLine]] = defaultdict(list)
    gone: dict[Any, list[Gpu]] = defaultdict(list)
    for row in Gpu.objects.filter(worker__in=ids, forgotten_at=None):
        offer = by_uuid.get(row.worker_id, {}).get(row.uuid)
        if offer is None:  # it was reported just now
            continue
        if row.present or offer.reserved:
            gpus[row.worker_id].append(GpuLine(row, offer))
        else:
            gone[row.worker_id].append(row)
    left, on_hold = left_on(workers), held.on(workers)
    twins = _twins(workers)
    lines = [
        WorkerLine(
            worker=worker,
            online=worker.is_online(now=now, up_since=up_since),
            left=tuple(left[worker.pk]),
            gpus=tuple(gpus[worker.pk]),
            gone=tuple(gone[worker.pk]),
            held=tuple(on_hold.get(worker.pk, ())),
            twins=twins.get(worker.pk, ()),
        )
        for worker in workers
    ]
    lines.sort(key=lambda line: (_TROUBLE_FIRST.index(line.look), line.worker.name.lower()))
    return Fleet(now, lines, remote_enabled=remote_workers_enabled())


def as_json(line: WorkerLine, *, now: datetime) -> dict[str, Any]:
    """One worker for programs."""
    worker = line.worker
    return {
        "worker_id": str(worker.pk),
        "name": worker.name,
        "standing": line.look,
        "scheduling": worker.scheduling,
        "reason": worker.scheduling_reason,
        "online": line.online,
        "local": worker.local,
        "last_seen_at": None if worker.last_seen_at is None else worker.last_seen_at.isoformat(),
        "silent_seconds": None if worker.last_seen_at is None else (now - worker.last_seen_at).total_seconds(),
        "refused": refusals.as_json(worker),
        "revoked_at": None if worker.revoked_at is None else worker.revoked_at.isoformat(),
        "stale": worker.last_seen_at is not None and not line.online,
        "jobs": line.jobs,
        "delivering": [
            {"lease": str(left.lease_id), "space": left.name, **delivering.as_json(left.bringing)}
            for left in line.left
            if left.bringing is not None
        ],
        "drain": None if line.drain is None else line.drain.as_json(),
        "held": [one.as_json() for one in line.held],
        "not_released": [one.as_json() for one in unreleased.on(worker)],
        "max_jobs": {"gpu": worker.max_gpu_jobs, "cpu": worker.max_cpu_jobs},
        "gateway": {
            "url": worker.gateway_url,
            "proposed_url": worker.gateway_proposed_url,
            "status": worker.gateway_status,
            "detail": worker.gateway_detail,
        },
        "version": worker.version,
        "executor": worker.executor,
        "features": worker.features,
        "gpus": [_gpu_as_json(gpu) for gpu in line.gpus],
        "gone_gpus": [_gone_as_json(gpu) for gpu in line.gone],
    }


def _gpu_as_json(line: GpuLine) -> dict[str, Any]:
    """One GPU for programs of operators: it names every Space and process. Memory in MiB; null is not known."""
    row, gpu = line.row, line.offer
    return {
        "uuid": gpu.uuid,
        "index": gpu.index,
        "model": row.model,
        "total_vram_mib": gpu.total_mib,
        "free_vram_mib": gpu.free_mib,
        "reserved_mib": vram.reserved_mib(gpu),
        "available_mib": vram.available_mib(gpu) if vram.in_order(gpu) else 0,
        "foreign_mib": vram.foreign_mib(gpu),
        "reservations": [
            {
                "lease": str(held.lease_id),
                "space": held.name,
                "mib": held.mib,
                "exclusive": held.exclusive,
                "used_mib": held.used_mib,
            }
            for held in gpu.reserved
        ],
        "foreign": row.foreign,
        "measurable": gpu.measurable,
        "healthy": gpu.healthy,
        "error": gpu.error,
        "good_reports_missing": gpu.good_reports_missing,
        "doubts": row.doubts,
        "also_at": list(gpu.also_at),
        "mig": gpu.mig,
        "simulated": gpu.simulated,
        "present": gpu.present,
        "reported_at": None if row.reported_at is None else row.reported_at.isoformat(),
    }


def _gone_as_json(row: Gpu) -> dict[str, Any]:
    """One GPU that its worker does not list any more."""
    last = None if row.reported_at is None else row.reported_at.isoformat()
    return {"uuid": row.uuid, "index": row.index, "model": row.model, "reported_at": last}


def _twins(workers: list[Worker]) -> dict[Any, tuple[str, ...]]:
    """Workers that report one machine id. It is a hint for people, never identity: cloned disks share it."""
    hints = {worker.pk: worker.capabilities.get("machine_hint") for worker in workers if worker.revoked_at is None}
    seen = Counter(hint for hint in hints.values() if hint)
    return {
        worker.pk: tuple(other.name for other in workers if other != worker and hints.get(other.pk) == hints[worker.pk])
        for worker in workers
        if hints.get(worker.pk) and seen[hints[worker.pk]] > 1
    }
