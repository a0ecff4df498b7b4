"""Why a queued job waits, as rows to draw: one per GPU of each worker, nearest first, for the eyes of one reader.

The judgement is `jobs.waiting`'s. Here it becomes sentences that name only Spaces the reader may know of.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from django.utils.translation import gettext as _

from jobs.scheduling import GpuRefusal
from jobs.waiting import Waiting, WorkerReason
from spaces import words
from spaces.bars import Segment, segments
from spaces.durations import gigabytes, needed_memory, rough

# What no waiting changes about a GPU.
NEVER_ON_A_GPU = frozenset({"gpu_too_small", "gpu_mig"})


@dataclass(frozen=True)
class Row:
    """One worker, or one GPU of a worker, and why it does not take the job."""

    worker: str
    code: str
    sentence: str
    gpu: str = ""  # "GPU 1 RTX 4090"
    group: str = ""  # where one row stands for many: "7 GPUs"
    names: str = ""  # and whose they are: `worker` says then how many
    standing: str = ""
    detail: str = ""  # under the standing: since when, how much is free
    simulated: bool = False
    never: bool = False
    near: bool = False
    segments: list[Segment] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "worker": self.worker,
            "gpu": self.gpu,
            "code": self.code,
            "reason": self.sentence,
            "never": self.never,
        }

    @property
    def offline(self) -> bool:
        return self.code == "worker_offline"


@dataclass(frozen=True)
class Reader:
    """What somebody may know: the Spaces he sees; what machines tell of themselves is the operator's."""

    spaces: Collection[str]  # "owner/name"
    operator: bool = False


def rows(waiting: Waiting, *, reader: Reader, now: datetime, gpu_count: int = 1) -> list[Row]:
    """Return the rows in the order of `waiting`; the first that could ever take the job is marked as nearest.

    `gpu_count`: how many GPUs the job needs at once.
    """
    made = [row for reason in waiting.workers for row in _rows_of(reason, reader, now, gpu_count)]
    nearest = next((index for index, row in enumerate(made) if not row.never and not row.offline), None)
    return [replace(row, near=True) if index == nearest else row for index, row in enumerate(made)]


def without_unnamed(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with one in place of all workers that do not count because another one was named."""
    others = [row for row in rows if row.code == "other_worker_named"]
    kept = [row for row in rows if row.code != "other_worker_named"]
    return [*kept, replace(others[0], worker=_("Every other worker"))] if others else kept


def _rows_of(reason: WorkerReason, reader: Reader, now: datetime, gpu_count: int) -> list[Row]:
    if reason.gpus:
        return [*(_gpu_row(reason, refusal, reader) for refusal in reason.gpus), *_free_rows(reason, gpu_count)]
    sentence = _worker_sentence(reason, reader, now)
    row = Row(
        worker=reason.name,
        code=reason.code,
        sentence=sentence,
        standing=words.standing(reason.code),
        detail=_worker_detail(reason, now),
        never=reason.never,
    )
    if reason.never or reason.refusal is None or not reason.offer.gpus:
        return [row]
    return [
        replace(row, gpu=words.gpu_name(gpu.index, gpu.model), simulated=gpu.simulated, segments=segments(gpu))
        for gpu in reason.offer.gpus
    ]


def _worker_sentence(reason: WorkerReason, reader: Reader, now: datetime) -> str:
    facts = dict(reason.refusal.facts) if reason.refusal is not None else {}
    if reason.code == "kept_for_older":
        name = str(facts.get("space", ""))
        known = reader.operator or name in reader.spaces
        facts["space"] = name if known else words.holders([], hidden=1)
        facts["time"] = rough((now - datetime.fromisoformat(facts["since"])).total_seconds())
    # The scheduler's own sentence may name what this reader should not know: it is no substitute.
    said = words.worker_refusal(reason.code, worker=reason.name, **facts)
    sentence = said or (reason.sentence if reader.operator else words.worker_refusal("not_now")) or ""
    if reason.code == "gateway_unreachable" and reader.operator and reason.offer.gateway_detail:
        sentence = f"{sentence} ({reason.offer.gateway_detail})"
    if reason.code == "gpu_jobs_paused" and reader.operator:
        sentence = f"{sentence} ({reason.offer.gpu_paused_reason})"
    if reason.code == "worker_paused" and reader.operator and reason.offer.paused_reason:
        sentence = f"{sentence} ({reason.offer.paused_reason})"
    if reason.code == "reports_refused" and reader.operator and reason.offer.refused_detail:
        sentence = f"{sentence} ({reason.offer.refused_detail})"
    return sentence


def _worker_detail(reason: WorkerReason, now: datetime) -> str:
    """What stands under the standing."""
    if reason.code == "worker_offline" and reason.offer.offline_since is not None:
        return _("for %(time)s") % {"time": rough((now - reason.offer.offline_since).total_seconds())}
    return _("takes no new jobs") if reason.code == "worker_draining" else ""


def _gpu_row(reason: WorkerReason, refusal: GpuRefusal, reader: Reader) -> Row:
    gpu = refusal.gpu
    visible = sorted({held.name for held in gpu.reserved if reader.operator or held.name in reader.spaces})
    hidden = len({held.name for held in gpu.reserved if not reader.operator and held.name not in reader.spaces})
    facts = {**refusal.facts, "holders": words.holders(visible, hidden=hidden)}
    sentence = words.gpu_refusal(refusal.code, **{**facts, **_sizes(facts)})
    if not sentence:  # a code that is not known here
        sentence = (refusal.sentence if reader.operator else words.gpu_refusal("not_now")) or ""
    if refusal.code == "gpu_foreign_use" and reader.operator and gpu.foreign:
        names = ", ".join(words.process(pid, name) for pid, name, _mib in gpu.foreign[:3])
        sentence = f"{sentence} ({names})"
    if refusal.code == "gpu_unhealthy" and reader.operator and gpu.error:
        sentence = f"{sentence} ({gpu.error})"
    return Row(
        worker=reason.name,
        gpu=words.gpu_name(gpu.index, gpu.model),
        code=refusal.code,
        sentence=sentence,
        standing=words.standing(refusal.code),
        detail=_gpu_detail(refusal),
        simulated=gpu.simulated,
        never=reason.never or refusal.code in NEVER_ON_A_GPU,
        segments=segments(gpu),
    )


def _free_rows(reason: WorkerReason, gpu_count: int) -> list[Row]:
    """The GPUs of the worker that would do, had it enough of them at once."""
    refused = {refusal.gpu.uuid for refusal in reason.gpus}
    return [
        Row(
            worker=reason.name,
            gpu=words.gpu_name(gpu.index, gpu.model),
            code="gpu_free_alone",
            sentence=words.gpu_refusal("gpu_free_alone", needed=gpu_count) or "",
            standing=words.standing("gpu_free_alone"),
            simulated=gpu.simulated,
            never=reason.never,
            segments=segments(gpu),
        )
        for gpu in reason.offer.gpus
        if gpu.uuid not in refused
    ]


def _gpu_detail(refusal: GpuRefusal) -> str:
    """How much there is, where amounts are what it is about."""
    key = {"gpu_foreign_use": "free_mib", "gpu_vram_reserved": "available_mib"}.get(refusal.code)
    mib = refusal.facts.get(key) if key else None
    return "" if mib is None else _("%(memory)s free") % {"memory": gigabytes(mib)}


def _sizes(facts: Mapping[str, Any]) -> dict[str, str]:
    """The facts in MiB as words: total_mib becomes total."""
    said = {
        key.removesuffix("_mib"): gigabytes(value)
        for key, value in facts.items()
        if key.endswith("_mib") and isinstance(value, int)
    }
    if isinstance(facts.get("needed_mib"), int):
        said["needed"] = needed_memory(facts["needed_mib"])
    return said


def for_anybody(reason: WorkerReason) -> str:
    """Return why a worker does not take a job, for a reader of whom nothing is known: it names no Space or process."""
    return _worker_sentence(reason, Reader(spaces=()), datetime.now(UTC))
