"""Why a queued job waits, as rows to draw: one per GPU of each worker, nearest first, for the eyes of one reader.

The judgement is `jobs.waiting`'s. Here it becomes sentences that name only Spaces the reader may know of.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime

from django.utils.translation import gettext as _

from jobs.scheduling import GpuRefusal
from jobs.waiting import Waiting, WorkerReason
from spaces import words
from spaces.bars import Segment, segments
from spaces.durations import gigabytes, needed_memory, rough


@dataclass(frozen=True)
class Row:
    """One worker, or one GPU of a worker, and why it does not take the job."""

    worker: str
    code: str
    sentence: str
    gpu: str = ""  # "GPU 1 RTX 4090"
    standing: str = ""
    detail: str = ""  # under the standing: since when, how much is free
    simulated: bool = False
    never: bool = False
    near: bool = False
    segments: list[Segment] = field(default_factory=list)

    @property
    def offline(self) -> bool:
        return self.code == "worker_offline"


@dataclass(frozen=True)
class Reader:
    """What somebody may know: the Spaces he sees; processes and addresses of the machines are the operator's alone."""

    spaces: Collection[str]  # "owner/name"
    operator: bool = False


def rows(waiting: Waiting, *, reader: Reader, now: datetime, needed_mib: int | None) -> list[Row]:
    """Return the rows in the order of `waiting`; the first that could ever take the job is marked as nearest."""
    made = [row for reason in waiting.workers for row in _rows_of(reason, reader, now, needed_mib)]
    nearest = next((index for index, row in enumerate(made) if not row.never and not row.offline), None)
    return [Row(**{**row.__dict__, "near": True}) if index == nearest else row for index, row in enumerate(made)]


def _rows_of(reason: WorkerReason, reader: Reader, now: datetime, needed_mib: int | None) -> list[Row]:
    if reason.gpus:
        return [_gpu_row(reason, refusal, reader, needed_mib) for refusal in reason.gpus]
    facts = dict(reason.refusal.facts) if reason.refusal is not None else {}
    sentence = words.worker_refusal(reason.code, worker=reason.name, **facts) or reason.sentence
    never = reason.refusal is not None and reason.refusal.never
    if reason.code == "gateway_unreachable" and reader.operator and reason.offer.gateway_detail:
        sentence = f"{sentence} ({reason.offer.gateway_detail})"
    detail = ""
    if reason.code == "worker_offline" and reason.offer.offline_since is not None:
        silent = (now - reason.offer.offline_since).total_seconds()
        detail = _("for %(time)s") % {"time": rough(silent)}
    elif reason.code == "worker_draining":
        detail = _("takes no new jobs")
    if never or reason.refusal is None or not reason.offer.gpus:
        return [
            Row(
                worker=reason.name,
                code=reason.code,
                sentence=sentence,
                standing=words.standing(reason.code),
                detail=detail,
                never=never,
            )
        ]
    return [
        Row(
            worker=reason.name,
            gpu=words.gpu_name(gpu.index, gpu.model),
            code=reason.code,
            sentence=sentence,
            standing=words.standing(reason.code),
            detail=detail,
            simulated=gpu.simulated,
            segments=segments(gpu),
        )
        for gpu in reason.offer.gpus
    ]


def _gpu_row(reason: WorkerReason, refusal: GpuRefusal, reader: Reader, needed_mib: int | None) -> Row:
    gpu = refusal.gpu
    free = gpu.total_mib - gpu.foreign_mib if gpu.free_mib is None else gpu.free_mib
    visible = sorted({held.name for held in gpu.reserved if held.name in reader.spaces})
    hidden = len({held.name for held in gpu.reserved if held.name not in reader.spaces})
    sentence = words.gpu_refusal(
        refusal.code,
        total=gigabytes(gpu.total_mib),
        free=gigabytes(free),
        foreign=gigabytes(gpu.foreign_mib),
        needed=needed_memory(needed_mib or 0),
        holders=words.holders(visible, hidden=hidden),
    )
    if refusal.code == "gpu_foreign_use" and reader.operator and gpu.foreign:
        names = ", ".join(f"{name}, pid {pid}" for pid, name, _mib in gpu.foreign[:3])
        sentence = f"{sentence} ({names})"
    return Row(
        worker=reason.name,
        gpu=words.gpu_name(gpu.index, gpu.model),
        code=refusal.code,
        sentence=sentence or words.worker_refusal("gpus_busy") or "",
        standing=words.standing(refusal.code),
        detail=_("%(memory)s free") % {"memory": gigabytes(free)} if refusal.code == "gpu_foreign_use" else "",
        simulated=gpu.simulated,
        never=refusal.code in ("gpu_too_small", "gpu_mig"),
        segments=segments(gpu),
    )


def for_anybody(reason: WorkerReason) -> str:
    """Return why a worker does not take a job, for a reader of whom nothing is known: it names no Space or process."""
    facts = dict(reason.refusal.facts) if reason.refusal is not None else {}
    said = words.worker_refusal(reason.code, worker=reason.name, **facts)
    return said or words.worker_refusal("gpus_busy") or ""
