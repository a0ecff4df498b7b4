"""What is known of the GPUs of a worker: written from each report, and doubted where it cannot be true.

A GPU is its UUID. One that a worker no longer lists keeps its row and what is reserved on it, as not present, until an
operator says that it is gone for good. One that failed is used again once it was well in GOOD_REPORTS heartbeats
running, or when an operator says so.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from django.db import connection, transaction
from django.db.models import Exists, OuterRef
from django.db.models.functions import Now
from psycopg.types.json import Jsonb

from jobs import audit, lifecycle
from jobs.models import Reservation
from jobs.vram import back_within, exceeds
from workers import readings
from workers.errors import InvalidReport
from workers.models import GOOD_REPORTS, Gpu, Worker
from workers.reports import GpuReport

_COLUMNS = [
    "index",
    "vendor",
    "model",
    "total_vram_mib",
    "free_vram_mib",
    "ours",
    "foreign",
    "doubts",
    "utilization_pct",
    "temperature_c",
    "power_w",
    "compute_capability",
    "mig",
    "healthy",
    "good_reports",
    "error",
    "simulated",
    "present",
    "forgotten_at",
    "reported_at",
]


# Written out, because it runs with every heartbeat and every claim: building it costs more than running it.
_KNOWN = """
    SELECT g.uuid, g.total_vram_mib, g.good_reports, g.present, r.id, r.lease_id, r.mib, r.over_since
    FROM workers_gpu g LEFT JOIN jobs_reservation r ON r.gpu_id = g.id AND r.cleared_at IS NULL
    WHERE g.worker_id = %s
"""
_JSON = frozenset({"ours", "foreign", "doubts"})
_ONE_ROW = f"({', '.join(['%s'] * (len(_COLUMNS) + 1))}, statement_timestamp())"  # reported_at comes last
_NAMES = [f'"{name}"' for name in _COLUMNS]
_UPSERT = (
    f"INSERT INTO workers_gpu (worker_id, uuid, {', '.join(_NAMES)}) VALUES {{rows}} "
    f"ON CONFLICT (worker_id, uuid) DO UPDATE SET {', '.join(f'{name} = EXCLUDED.{name}' for name in _NAMES)}"
)


@dataclass(frozen=True)
class Crossing:
    """A job began to use more of a GPU than it reserved, or came back within it."""

    reservation_id: int
    used_mib: int
    over: bool


@dataclass(frozen=True)
class _Reserved:
    """An uncleared reservation on a GPU, as far as a report is compared with it."""

    pk: int
    lease_id: uuid.UUID
    mib: int
    over: bool


@dataclass
class _Known:
    """What was known of a GPU before this report."""

    total_mib: int = 0
    good_reports: int = GOOD_REPORTS
    present: bool = False
    reserved: list[_Reserved] = field(default_factory=list)


def check_gpus(gpus: Sequence[GpuReport]) -> None:
    """Raise InvalidReport where a list of GPUs contradicts itself."""
    uuids = [gpu.uuid for gpu in gpus]
    if len(set(uuids)) != len(uuids):
        raise InvalidReport({"gpus": ["The same UUID is listed twice."]})
    if len({gpu.simulated for gpu in gpus}) > 1:
        raise InvalidReport({"gpus": ["Simulated GPUs are never beside real ones in one worker."]})


def store_gpus(worker: Worker, gpus: Sequence[GpuReport], *, counts: bool) -> list[Crossing]:
    """Write what a locked worker says of its GPUs; those it no longer lists stay, as not present.

    `counts`: whether a good report counts towards the trust in a GPU that failed: those of heartbeats do, those of
    claims do not, for there may be many at once. Returns which jobs crossed the line of their reservations, for `tell`.
    Two statements; a third where something vanished.
    """
    known = _known(worker)
    rows = [_row(worker, place, gpu, known.get(gpu.uuid) or _Known(), counts) for place, gpu in enumerate(gpus)]
    if rows:
        _write(rows)
    listed = {gpu.uuid for gpu in gpus}
    vanished = [name for name, gpu in known.items() if gpu.present and name not in listed]
    if vanished:
        Gpu.objects.filter(worker=worker, uuid__in=vanished).update(
            present=False, free_vram_mib=None, ours=[], foreign=[]
        )
    return [crossing for row in rows for crossing in _crossings(row, known.get(row.uuid))]


def tell(crossings: Sequence[Crossing]) -> None:
    """Write the warnings. After whatever locks jobs in the same transaction: reservations come last."""
    for crossing in crossings:
        if crossing.over:
            lifecycle.warn_of_overuse(crossing.reservation_id, used_mib=crossing.used_mib)
        else:
            lifecycle.end_overuse(crossing.reservation_id)


def trust(gpu_id: int, *, actor: Any = None, address: str | None = None) -> bool:
    """Use a GPU that failed again at once, on an operator's word; whether that changed anything."""
    with transaction.atomic():
        gpu = Gpu.objects.select_related("worker").get(pk=gpu_id)
        changed = Gpu.objects.filter(pk=gpu_id, good_reports__lt=GOOD_REPORTS).update(good_reports=GOOD_REPORTS)
        if changed:
            audit.record("gpu_trusted", obj=gpu.worker, actor=actor, address=address, after={"gpu": gpu.uuid})
    return bool(changed)


def forget(gpu_id: int, *, actor: Any = None, address: str | None = None) -> bool:
    """Leave a GPU that is gone out of everything, on an operator's word; whether that changed anything.

    Not one that its worker lists, nor one with something reserved on it. Its row stays, because history names it; if
    its worker ever lists it again, it is back.
    """
    with transaction.atomic():
        gpu = Gpu.objects.select_related("worker").get(pk=gpu_id)
        held = Exists(Reservation.objects.filter(gpu=OuterRef("pk"), cleared_at=None))
        gone = Gpu.objects.filter(~held, pk=gpu_id, present=False, forgotten_at=None)
        changed = gone.update(forgotten_at=Now())
        if changed:
            audit.record("gpu_forgotten", obj=gpu.worker, actor=actor, address=address, after={"gpu": gpu.uuid})
    return bool(changed)


def _known(worker: Worker) -> dict[str, _Known]:
    """What the rows say of this worker's GPUs, with what is reserved on them: one query."""
    with connection.cursor() as cursor:
        cursor.execute(_KNOWN, [worker.pk])
        rows = cursor.fetchall()
    known: dict[str, _Known] = {}
    for uuid_, total_mib, good_reports, present, pk, lease_id, mib, over_since in rows:
        gpu = known.setdefault(uuid_, _Known(total_mib, good_reports, present))
        if pk is not None:
            gpu.reserved.append(_Reserved(pk, lease_id, mib, over_since is not None))
    return known


def _write(rows: Sequence[Gpu]) -> None:
    """Insert or update these rows: one statement."""
    values: list[Any] = [
        Jsonb(getattr(row, name)) if name in _JSON else getattr(row, name)
        for row in rows
        for name in ("worker_id", "uuid", *_COLUMNS)
        if name != "reported_at"
    ]
    with connection.cursor() as cursor:
        cursor.execute(_UPSERT.format(rows=", ".join([_ONE_ROW] * len(rows))), values)


def _row(worker: Worker, position: int, gpu: GpuReport, known: _Known, counts: bool) -> Gpu:
    found = readings.believed(gpu, largest=known.total_mib)
    healthy = gpu.healthy is not False and not gpu.error
    return Gpu(
        worker=worker,
        uuid=gpu.uuid,
        index=position if gpu.index is None else gpu.index,
        vendor=gpu.vendor or "",
        model=gpu.model or "",
        total_vram_mib=found.total_mib,
        free_vram_mib=found.free_mib,
        ours=[{"lease": str(use.lease), "mib": use.mib} for use in found.ours],
        foreign=[asdict(process) for process in found.foreign],
        doubts=[asdict(doubt) for doubt in found.doubts],
        utilization_pct=gpu.utilization_pct,
        temperature_c=gpu.temperature_c,
        power_w=gpu.power_w,
        compute_capability=gpu.compute_capability or "",
        mig=bool(gpu.mig),
        healthy=healthy,
        good_reports=min(GOOD_REPORTS, known.good_reports + counts) if healthy else 0,
        error=gpu.error or "",
        simulated=gpu.simulated,
        present=True,
    )


def _crossings(row: Gpu, known: _Known | None) -> list[Crossing]:
    """Which jobs use more than they reserved since this report, and which came back."""
    if known is None or not known.reserved:
        return []
    used: Mapping[str, int | None] = {use["lease"]: use["mib"] for use in row.ours}
    crossings = []
    for held in known.reserved:
        mib = used.get(str(held.lease_id))
        if mib is not None and (back_within if held.over else exceeds)(held.mib, mib):
            crossings.append(Crossing(held.pk, mib, over=not held.over))
    return crossings
