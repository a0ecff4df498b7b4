"""What a worker reports of a job: events in order, and log text. One transaction per batch; repeats change nothing."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.apps import apps
from django.db import transaction

from jobs import cuda
from jobs import logs as log_rows
from jobs.clock import database_now
from jobs.errors import EventGap, IllegalTransition, SupersededSession
from jobs.lifecycle.delivering import note_delivering
from jobs.lifecycle.health import note_health
from jobs.lifecycle.transition import Cause, lock_job, move, own_lease, write_event
from jobs.models import Job, Lease
from jobs.requirements import requirement_row, spec_of
from jobs.scheduling import RequirementSpec
from jobs.sessions import is_current
from jobs.states import Event, JobState
from jobs.switch import is_withheld

MAX_REASON_CHARS = 4000
FOUND_PREFIXES = ("keep", "strip")  # what an app was found to want; a newer worker may know more
# Why a worker starts a running app anew, under the same lease.
RESTARTS = frozenset({"host_rebooted", "engine_restarted"})

PLAIN_KINDS = {
    "building": Event.BUILDING,
    "running": Event.RUNNING,
    "declined": Event.DECLINED,
    "failed": Event.BROKE,
    "stopped": Event.STOPPED,
}
SENTENCES = {
    "building": "The image is being built.",
    "starting": "The container is started.",
    "running": "The app answers.",
    "stopped": "The worker stopped it.",
    "declined": "The worker handed it back.",
    "failed": "It failed.",
}
# Of a batch job, which answers nobody: its worker says the same of both.
COMPUTING = Cause("computing", "It computes until it ends by itself.")
# After a gap the worker says where it is now, instead of all it went through.
SNAPSHOT_STATES = {
    "leased": Event.RESUMED,
    "building": Event.BUILDING,
    "starting": Event.STARTING,
    "running": Event.RUNNING,
    "stopped": Event.STOPPED,
}


@dataclass(frozen=True)
class Report:
    """One event of a lease. `seq` starts at 1 and has no holes; `data` are the kind's own fields."""

    seq: int
    kind: str
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LogText:
    """A piece of one stream. `offset` counts the UTF-8 bytes before it."""

    stream: str
    offset: int
    text: str


@dataclass(frozen=True)
class Recorded:
    """What was taken. `log_offsets`: where each stream goes on. `stop`: the worker should stop the job."""

    accepted_through: int
    log_offsets: dict[str, int]
    state: str
    stop: bool


def record(
    worker_id: uuid.UUID,
    *,
    session: int,
    job_id: uuid.UUID,
    lease_id: uuid.UUID,
    reports: Sequence[Report] = (),
    logs: Sequence[LogText] = (),
) -> Recorded:
    """Take a batch of reports of one lease.

    Raises StaleLease (released, or not this worker's), EventGap (nothing taken), SupersededSession, UnknownJob,
    UnknownLease.
    An event that is illegal in the present state is stored as ignored, and the batch goes on. Where an app ended and
    less of its log has arrived than there is, the rest is still taken, and nothing else under that lease.
    """
    with transaction.atomic():
        job = lock_job(job_id)
        _check_session(worker_id, session)
        late = _ended_short(job, worker_id, lease_id)
        if late is not None and all(report.seq <= late.accepted_through for report in reports):
            return _take_rest(job, late, logs)
        lease = own_lease(job, worker_id, lease_id)
        now = database_now()
        for report in sorted(reports, key=lambda report: report.seq):
            if report.seq <= lease.accepted_through:
                continue
            if report.seq != lease.accepted_through + 1:
                raise EventGap(lease.accepted_through + 1)
            _apply(job, lease, report, now=now)
            lease.accepted_through = report.seq
        if reports:
            Lease.objects.filter(pk=lease.pk).update(accepted_through=lease.accepted_through)
        # After the events, so that a refused chunk never costs a state.
        for piece in logs:
            log_rows.append(lease, piece.stream, offset=piece.offset, text=piece.text)
        offsets = log_rows.next_offsets(lease)
        if lease.released_at is not None and log_rows.is_short(offsets, _log_ends(reports)):
            _mark(lease, incomplete=True)
    return _recorded(job, lease, offsets)


def _recorded(job: Job, lease: Lease, offsets: dict[str, int]) -> Recorded:
    return Recorded(lease.accepted_through, offsets, job.state, stop=job.stop_requested_at is not None)


def _log_ends(reports: Sequence[Report]) -> dict[str, int]:
    """How long each stream is, as told with the end of the app; empty where none of these reports is that."""
    for report in reports:
        if report.kind == "exited":
            return {stream: int(end) for stream, end in (report.data.get(log_rows.ENDS) or {}).items()}
    return {}


def _ended_short(job: Job, worker_id: uuid.UUID, lease_id: uuid.UUID) -> Lease | None:
    """This worker's lease whose app ended by its own report before all of its log had arrived."""
    if not job.is_final:  # no query for the reports of jobs that live
        return None
    mine = Lease.objects.select_for_update(no_key=True).filter(pk=lease_id, job=job, worker=worker_id)
    return mine.filter(log_incomplete=True).first()


def _take_rest(job: Job, lease: Lease, logs: Sequence[LogText]) -> Recorded:
    """Take what was missing of an ended app's log, up to the end that was told."""
    ends = log_rows.ends_told(lease)
    for piece in logs:
        if piece.offset < ends.get(piece.stream, 0):
            log_rows.append(lease, piece.stream, offset=piece.offset, text=piece.text)
    offsets = log_rows.next_offsets(lease)
    if not log_rows.is_short(offsets, ends):
        _mark(lease, incomplete=False)
    return _recorded(job, lease, offsets)


def _mark(lease: Lease, *, incomplete: bool) -> None:
    lease.log_incomplete = incomplete
    Lease.objects.filter(pk=lease.pk).update(log_incomplete=incomplete)


def _check_session(worker_id: uuid.UUID, session: int) -> None:
    worker = apps.get_model("workers", "Worker").objects.filter(pk=worker_id).values_list("session", flat=True).first()
    if worker is None or not is_current(worker, session):
        raise SupersededSession


def _apply(job: Job, lease: Lease, report: Report, *, now: datetime) -> None:
    if report.kind == "health":
        note_health(job, lease, report.data, seq=report.seq)  # it moves nothing
        return
    if report.kind == "delivering":
        note_delivering(job, lease, report.data, seq=report.seq)  # nor does this
        return
    event = _event(job, report)
    cause = _cause(job, lease, report)
    if event is Event.RUNNING and job.state == JobState.UNAVAILABLE and is_withheld(lease):
        event = None  # it runs, and may not be shown; the heartbeat that follows the switching on says it again
    if event is None:
        write_event(job, report.kind[:32], cause, before=JobState(job.state), after=None, ignored=True)
        return
    try:
        move(job, event, cause, now=now, **_facts(job, lease, report, event))
    except IllegalTransition:
        write_event(job, event.value, cause, before=JobState(job.state), after=None, ignored=True)


def _event(job: Job, report: Report) -> Event | None:
    """What a report means for the job, or None where we do not know the kind (a newer worker may)."""
    if report.kind == "starting":
        return Event.REBOOTED if report.data.get("reason") in RESTARTS else Event.STARTING
    if report.data.get("reason") == "needs_cuda" and report.kind == "declined" and _needs(job, report) is None:
        return Event.BROKE  # nothing would keep the same worker from taking it again, for ever
    if report.kind == "exited":
        succeeded = job.mode == Job.Mode.BATCH and report.data.get("code") == 0
        return Event.FINISHED if succeeded else Event.BROKE
    if report.kind == "snapshot":
        return SNAPSHOT_STATES.get(str(report.data.get("state")))
    return PLAIN_KINDS.get(report.kind)


def _facts(job: Job, lease: Lease, report: Report, event: Event) -> dict[str, Any]:
    """Columns that a report fills besides the state."""
    facts: dict[str, Any] = {}
    if image_id := report.data.get("image_id"):
        facts["image_id"] = str(image_id)[:128]
    if report.kind == "running" and (found := report.data.get("prefix")) in FOUND_PREFIXES:
        facts["spec"] = {**job.spec, "found_prefix": found}
    if event is Event.DECLINED and (needs := _needs(job, report)) is not None:
        facts["requirement_id"] = requirement_row(needs).pk
    if report.kind == "exited":
        code = report.data.get("code")
        facts |= {"exit_code": code, "oom_killed": bool(report.data.get("oom_killed"))}
    if job.state == JobState.QUEUED and event in (Event.RESUMED, Event.BUILDING, Event.STARTING, Event.RUNNING):
        facts["worker_id"] = lease.worker_id  # its lease had expired; the same attempt goes on
    return facts


def _needs(job: Job, report: Report) -> RequirementSpec | None:
    """The job's class, narrowed by the CUDA that a worker said is needed; None where that narrows nothing."""
    known = spec_of(job.requirement)
    more = dataclasses.replace(known, features=cuda.needing(known.features, str(report.data.get("cuda") or "")))
    return more if set(more.features) != set(known.features) else None


def _cause(job: Job, lease: Lease, report: Report) -> Cause:
    data = report.data
    facts = None
    if report.kind == "exited":
        ends = _log_ends([report])
        facts = {log_rows.ENDS: ends} if ends else None
        code = "oom_killed" if data.get("oom_killed") else "exited"
        sentence = str(data.get("detail") or _exit_sentence(data))
    elif report.kind == "running" and job.mode == Job.Mode.BATCH:
        return dataclasses.replace(COMPUTING, lease=lease, seq=report.seq)
    else:
        code = str(data.get("reason") or report.kind)
        sentence = str(data.get("detail") or SENTENCES.get(report.kind, ""))
    return Cause(code[:64], sentence[:MAX_REASON_CHARS], lease, seq=report.seq, facts=facts)


def _exit_sentence(data: dict[str, Any]) -> str:
    if data.get("oom_killed"):
        return "It ran out of memory and was killed."
    code = data.get("code")
    return "It exited." if code is None else f"It exited with code {code}."
