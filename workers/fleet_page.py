"""What the fleet page draws, for the eyes of one reader: figures, one row per worker, one bar per GPU.

Names of Spaces are said only to who may see them; processes and addresses of the machines are the operator's alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext

from jobs import line as queue
from jobs.models import Job
from spaces import delivering, words
from spaces.durations import gigabytes, rough
from spaces.why import Reader
from workers import refusals, unreleased
from workers.gateways import refused_proposal
from workers.gpu_rows import GpuRow, gone_since, gpu_row
from workers.held import Held
from workers.models import Gpu, Worker
from workers.offers import gateway_sentence
from workers.overview import Fleet, WorkerLine
from workers.unreleased import Unreleased
from workers.workers_words import finding, in_own_words, told

PIPS_DRAWN = 12  # more slots than this are told as a number only
LOW_DISK_MIB = 5 * 1024
HELD_SHOWN = 10  # of the containers on hold; the admin and the API list all


@dataclass(frozen=True)
class Look:
    """A worker's badge: glyph of the sprite, class of the stylesheet, and the word."""

    glyph: str
    style: str
    word: str


@dataclass(frozen=True)
class Pip:
    x: float
    on: bool


@dataclass(frozen=True)
class WorkerRow:
    """One worker as a row."""

    worker: Worker
    look: Look
    silent_for: str  # "" where it never reported
    jobs: int
    max_jobs: int
    pips: list[Pip]
    gpus: list[GpuRow]
    note: str  # what a worker without GPUs does instead
    gone: bool
    facts: list[tuple[str, str]] = field(default_factory=list)  # for operators
    remarks: list[str] = field(default_factory=list)

    @property
    def pips_width(self) -> int:
        return 10 * len(self.pips)


@dataclass(frozen=True)
class Figure:
    """One number of the head: "4 of 6"."""

    name: str
    value: str
    rest: str


@dataclass(frozen=True)
class Page:
    """All of it."""

    figures: list[Figure]
    rows: list[WorkerRow]
    remote_off: bool = False  # there are remote workers, and they are switched off


def page(fleet: Fleet, *, reader: Reader) -> Page:
    """Draw the fleet for one reader. One query more: the line."""
    rows = [_row(line, fleet.now, reader) for line in fleet.lines]
    remote_off = not fleet.remote_enabled and any(not line.worker.local for line in fleet.lines)
    return Page(_figures(fleet), rows, remote_off=remote_off)


def look(name: str) -> Look:
    """The badge for a worker's standing, as `WorkerLine.look` names it."""
    match name:
        case "online":
            return Look("online", "online", pgettext("worker", "Online"))
        case "offline":
            return Look("offline", "offline", words.standing("worker_offline"))
        case "refused":
            return Look("failed", "failed", words.standing("reports_refused"))
        case "draining":
            return Look("draining", "draining", words.standing("worker_draining"))
        case "disabled":
            return Look("stop", "offline", words.standing("worker_disabled"))
        case "paused":
            return Look("clock", "draining", words.standing("worker_paused"))
        case "revoked":
            return Look("offline", "offline", pgettext("worker", "Revoked"))
        case _:
            return Look("queued", "queued", pgettext("worker", "Not started yet"))


def _figures(fleet: Fleet) -> list[Figure]:
    lines = fleet.lines
    # Simulated cards are shown, and never counted with real ones; of a split card its parts count.
    present = [gpu for line in lines for gpu in line.gpus if gpu.row.present]
    cards = [gpu.offer for gpu in present if not (gpu.row.simulated or gpu.row.mig)]
    reserved = sum(held.mib for card in cards for held in card.reserved)
    oldest = Job.objects.filter(pk__in=queue.head(1)).values_list("queued_at", flat=True).first()
    waits = "" if oldest is None else _("up to %(time)s") % {"time": rough((fleet.now - oldest).total_seconds())}
    figures = [
        Figure(_("Workers online"), str(sum(line.online for line in lines if line.look != "refused")), _of(len(lines))),
        Figure(_("Jobs"), str(sum(line.jobs for line in lines)), _of(sum(line.max_jobs for line in lines))),
    ]
    if cards:
        whole = gigabytes(sum(card.total_mib for card in cards))
        figures += [
            Figure(_("GPUs reserved"), str(sum(bool(card.reserved) for card in cards)), _of(len(cards))),
            Figure(_("VRAM reserved"), gigabytes(reserved).split()[0], _("of %(whole)s") % {"whole": whole}),
        ]
    return [*figures, Figure(_("In line"), str(queue.in_line().count()), waits)]


def _of(whole: int) -> str:
    return _("of %(whole)s") % {"whole": whole}


def _row(line: WorkerLine, now: datetime, reader: Reader) -> WorkerRow:
    worker = line.worker
    silent = "" if worker.last_seen_at is None else rough((now - worker.last_seen_at).total_seconds())
    slots = line.max_jobs if line.max_jobs <= PIPS_DRAWN else 0
    return WorkerRow(
        worker=worker,
        look=look(line.look),
        silent_for=silent,
        jobs=line.jobs,
        max_jobs=line.max_jobs,
        pips=[Pip(10 * n + 0.5, n < line.jobs) for n in range(slots)],
        gpus=[gpu_row(gpu, online=line.online, reader=reader) for gpu in line.gpus],
        note=_note(line, reader),
        gone=not line.online,
        facts=_facts(worker) if reader.operator else [],
        remarks=[
            *_delivering(line, reader),
            *_refused(line, now, reader),
            *_remarks(line, reader),
            *(_operators_remarks(line) if reader.operator else []),
        ],
    )


def _note(line: WorkerLine, reader: Reader) -> str:
    """What a worker without GPUs is for, and what it runs."""
    if line.gpus:
        return ""
    seen = [name for name in line.names if reader.operator or name in reader.spaces]
    what = _("No GPU. Takes Spaces without the topic “gpu”.") if line.worker.local else _("No GPU is reported.")
    if not line.names:
        return what
    return f"{what} " + _("Now: %(names)s.") % {"names": words.holders(seen, hidden=len(line.names) - len(seen))}


def _delivering(line: WorkerLine, reader: Reader) -> list[str]:
    """Which jobs have ended there and deliver their results. Of one that is away, what it does is not known."""
    return [
        delivering.of(left.name if _knows(reader, left.name) else words.holders([], hidden=1), left.bringing)
        for left in line.left
        if left.bringing is not None and line.online
    ]


def _knows(reader: Reader, space: str) -> bool:
    return reader.operator or space in reader.spaces


def _refused(line: WorkerLine, now: datetime, reader: Reader) -> list[str]:
    """Since when nothing of what it says can be used; the fields are the operator's business."""
    worker = line.worker
    if worker.refused_since is None:
        return []
    time = rough((now - worker.refused_since).total_seconds())
    if not reader.operator:
        return [_("Its reports have been refused for %(time)s.") % {"time": time}]
    facts = {"time": time, "fields": refusals.told(worker)}
    return [_("Its reports have been refused as invalid for %(time)s: %(fields)s.") % facts]


def _remarks(line: WorkerLine, reader: Reader) -> list[str]:
    """What everybody who is signed in may know of a worker that does not serve."""
    worker, remarks = line.worker, []
    if not line.online and worker.expected_online:
        remarks.append(_("Usually on: %(hours)s.") % {"hours": worker.expected_online})
    if worker.scheduling != Worker.Scheduling.OPEN:
        remarks += _drain(line, reader)
        if worker.scheduling_reason:
            remarks.append(worker.scheduling_reason)
    if not worker.accepting and worker.paused_reason:
        told = reader.operator  # it is free text of whoever owns the machine
        remarks.append(
            _("Paused: %(reason)s") % {"reason": worker.paused_reason} if told else _("Takes no jobs for the moment.")
        )
    elif line.online and worker.gpu_paused_reason:
        sentence = words.worker_refusal("gpu_jobs_paused") or ""
        said = in_own_words(worker.gpu_paused_reason)
        remarks.append(format_html("{} ({})", sentence, said) if reader.operator else sentence)
    return remarks


def _drain(line: WorkerLine, reader: Reader) -> list[str]:
    """How far draining or disabling is, and what is left."""
    drain = line.drain
    if drain is None:
        return []
    if drain.complete:
        return [_("Drained: safe to switch off.")]
    told = [] if drain.complete is False else [_("What is left on it is not known, because it does not say.")]
    if drain.left:
        ours = [left.name for left in drain.left if left.name]
        seen = [name for name in ours if reader.operator or name in reader.spaces]
        names = [words.holders(seen, hidden=len(ours) - len(seen))] if ours else []
        if unknown := len(drain.left) - len(ours):
            names.append(
                ngettext("%(count)d unknown container", "%(count)d unknown containers", unknown) % {"count": unknown}
            )
        told.append(_("%(count)d left: %(names)s.") % {"count": len(drain.left), "names": ", ".join(names)})
    return told


def _of_its_gateway(line: WorkerLine) -> list[str]:
    worker, remarks = line.worker, []
    if line.online and worker.gateway_status != Worker.Gateway.OK:
        remarks.append(_("Its gateway does not serve: %(why)s.") % {"why": gateway_sentence(worker)})
    if refusal := refused_proposal(worker):
        facts = {"url": worker.gateway_proposed_url, "why": refusal.rstrip("."), "called": worker.gateway_url}
        remarks.append(
            _("The gateway address %(url)s that it proposes is refused: %(why)s. %(called)s goes on counting.") % facts
        )
    elif worker.gateway_proposed_url and not remarks:
        remarks.append(_("It proposes another gateway address: %(url)s.") % {"url": worker.gateway_proposed_url})
    return remarks


def _operators_remarks(line: WorkerLine) -> list[str]:
    worker, remarks = line.worker, []
    remarks += _of_its_gateway(line)
    for check in worker.doctor:
        # Neither good nor bad is worth a line only where somebody could do something about it.
        if check.get("ok") is False or (check.get("ok") is None and check.get("remedy")):
            remarks.append(finding(check))
    remarks += [_unreleased(one) for one in unreleased.on(worker)]
    if worker.driver_gpu_count is not None and worker.driver_gpu_count > sum(gpu.row.present for gpu in line.gpus):
        count, why = worker.driver_gpu_count, worker.capabilities.get("gpu_unopened_reason")
        if why:
            sentence = _("The driver counts %(count)s GPUs and cannot open all of them: %(why)s")
            remarks.append(told(sentence, count=str(count), why=in_own_words(why)))
        else:
            remarks.append(_("The driver counts %(count)d GPUs, fewer are listed.") % {"count": count})
    remarks += [_gone(row) for row in line.gone]
    if line.held:
        remarks.append(_("%(count)d container(s) on hold: of leases nobody knows here.") % {"count": len(line.held)})
        remarks += [_on_hold(one) for one in line.held[:HELD_SHOWN]]
    if line.twins:
        names = ", ".join(line.twins)
        remark = _("It reports the same machine id as %(names)s: one machine, or a cloned disk.")
        remarks.append(remark % {"names": names})
    free = worker.disk.get("docker_root_free_mib")
    if free is not None and free < LOW_DISK_MIB:
        remarks.append(_("Only %(free)s free for images.") % {"free": gigabytes(free)})
    if worker.executor == "process":
        remarks.append(_("Runs Spaces as plain processes, without isolation."))
    return remarks


def _gone(row: Gpu) -> str:
    """A card that is not in the machine any more, or fell off its bus."""
    since = "" if row.reported_at is None else gone_since(row.reported_at)
    return f"{words.gpu_name(row.index, row.model)}: {words.gpu_refusal('gpu_gone')} {since}".rstrip()


def _unreleased(one: Unreleased) -> str:
    """What the worker says of the memory, and whether the GPU may be given in spite of it."""
    freed = _("An operator has freed the GPU: what is still used there counts as use by others.")
    said = in_own_words(one.reason)
    return format_html("{} {}", said, freed) if one.freed else said


def _on_hold(one: Held) -> str:
    """One container on hold: what an operator needs to name it, and to know what it is."""
    said = _("Lease %(lease)s, uses %(used)s") if one.mib else _("Lease %(lease)s")
    name = said % {"lease": one.lease_id, "used": gigabytes(one.mib or 0)}
    fate = _("is being removed.") if one.removal_asked else _("kept until somebody removes it, or a day.")
    return f"{name}: {fate}"


def _facts(worker: Worker) -> list[tuple[str, str]]:
    """What an operator looks up."""
    known = worker.capabilities
    disk: Sequence[int | None] = [worker.disk.get("docker_root_free_mib"), worker.disk.get("data_free_mib")]
    docker = known.get("docker") or {}
    facts = [
        (_("Version"), worker.version),
        (_("Driver"), " / ".join(filter(None, (known.get("driver_version"), known.get("cuda_version"))))),
        (_("Docker"), docker.get("version") or ""),
        (_("Disk"), " / ".join(gigabytes(free) for free in disk if free is not None)),
        (_("Gateway"), worker.gateway_url.removeprefix("http://")),
        (_("Host"), worker.hostname),
    ]
    return [(name, value) for name, value in facts if value]
