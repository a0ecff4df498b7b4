"""What workers are: written at register, refreshed by heartbeats, asked by everybody else.

A heartbeat is two steps. First one narrow UPDATE for liveness, in a statement of its own that waits for nobody: however
busy the tables of jobs are, a worker that speaks is alive. Then, in a transaction with the worker's row locked, what it
said, and the one list of what it shall do with each lease.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from django.db import connection, transaction
from django.db.models.functions import Now

from jobs import lifecycle, notices
from jobs.errors import SupersededSession
from jobs.sessions import MOST_AHEAD, is_current
from workers import credentials, gateways, gpus, held, refusals, unreleased
from workers.errors import CredentialRevoked, NotYourWorker
from workers.intervals import Intervals, intervals
from workers.models import Worker
from workers.reports import Capabilities, Heartbeat, HoldReport, Registration

# The second step of a heartbeat waits at most so long for rows that others hold, then answers 503: the worker is alive
# by then, and asks again.
LOCK_TIMEOUT_MS = 1000
# Free space is shown in GB: smaller changes are not worth a write with each heartbeat.
DISK_STEP_MIB = 64
# Written out, because these run with every heartbeat and every claim: building them costs more than running them.
# A session that is taken over begins to count its beats anew.
_ALIVE = """
    UPDATE workers_worker SET last_seen_at = statement_timestamp(), session = %s,
        beat = GREATEST(CASE WHEN session = %s THEN beat ELSE 0 END, %s)
    WHERE id = %s AND session BETWEEN %s AND %s AND revoked_at IS NULL
"""
_LOCK = "SELECT * FROM workers_worker WHERE id = %s FOR NO KEY UPDATE"


@dataclass(frozen=True)
class Answer:
    """What a worker is told after register and heartbeat: times, standing, and what to do with every lease."""

    session: int
    intervals: Intervals
    standing: str
    gateway: str | None
    leases: Sequence[lifecycle.Instruction]
    gateway_url: str | None = None
    """The address that we call."""
    gateway_detail: str | None = None
    """Why it does not serve."""


def register(worker_id: uuid.UUID, registration: Registration) -> Answer:
    """Take a worker's description after a start; older sessions of it are refused from now on.

    Raises NotYourWorker (its state directory belongs to another worker), InvalidReport, CredentialRevoked.
    """
    if registration.capabilities.worker_id != worker_id:
        raise NotYourWorker("The worker says that it is another one than its credential.")
    with transaction.atomic():
        worker = lock(worker_id)
        gpus.check_gpus(registration.gpus)
        columns = {
            "session": worker.session + 1,
            "beat": 0,
            "accepting": True,
            "paused_reason": "",
            "doctor": [asdict(check) for check in registration.doctor],
            "last_seen_at": Now(),
            "registered_at": Now(),
            **refusals.NONE,
            **_described(registration.capabilities),
        }
        worker.save(update_fields=gateways.apply_proposal(worker, registration.gateway_url))
        _write(worker, columns)
        crossings = gpus.store_gpus(worker, registration.gpus, counts=True)
        instructions = lifecycle.sync_holds(worker_id, holds=_holds(registration.holds), registering=True)
        gpus.tell(crossings)
        _write(worker, _inventory(worker, registration.holds, instructions))
        notices.publish("gateway", worker=worker_id)
    return _answer(worker, instructions)


def heartbeat(worker_id: uuid.UUID, beat: Heartbeat) -> Answer:
    """Take a sign of life and answer with what the worker shall do.

    A beat that is older than the last one (it was overtaken on the way) proves life and changes nothing else.
    Raises SupersededSession, CredentialRevoked, InvalidReport.
    """
    note_alive(worker_id, session=beat.session, beat=beat.beat)
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{LOCK_TIMEOUT_MS}ms"])
        worker = lock(worker_id, session=beat.session)
        if beat.beat < worker.beat:
            return _answer(worker, lifecycle.sync_holds(worker_id, holds=None, registering=False))
        gpus.check_gpus(beat.gpus)
        said = _said(worker, beat)
        crossings = gpus.store_gpus(worker, beat.gpus, counts=True)
        instructions = lifecycle.sync_holds(worker_id, holds=_holds(beat.holds), registering=False)
        gpus.tell(crossings)
        _write(worker, said | _inventory(worker, beat.holds, instructions))
    return _answer(worker, instructions)


def note_alive(worker_id: uuid.UUID, *, session: int, beat: int = 0) -> None:
    """Stamp `last_seen_at`, and the number of the newest beat, in one statement of its own.

    A session ahead of our row's (an older database was restored) is taken over. Raises CredentialRevoked,
    SupersededSession.
    """
    with connection.cursor() as cursor:
        cursor.execute(_ALIVE, [session, session, beat, worker_id, session - MOST_AHEAD, session])
        alive = cursor.rowcount
    if not alive:
        _refuse(Worker.objects.only("revoked_at", "credential_hash").get(pk=worker_id))


def lock(worker_id: uuid.UUID, *, session: int | None = None) -> Worker:
    """Lock a worker's row in the caller's transaction. Raises CredentialRevoked, SupersededSession."""
    worker = next(iter(Worker.objects.raw(_LOCK, [worker_id])), None)
    if worker is None:
        raise Worker.DoesNotExist
    if worker.revoked_at is not None or (session is not None and not is_current(worker.session, session)):
        _refuse(worker)
    return worker


def _described(capabilities: Capabilities) -> dict[str, Any]:
    """Columns of what the machine is."""
    columns = {
        "hostname": capabilities.hostname or "",
        "version": capabilities.worker_version,
        "executor": capabilities.executor,
        "engine_id": capabilities.engine_id or "",
        "features": capabilities.features,
        "max_gpu_jobs": capabilities.max_gpu_jobs,
        "max_cpu_jobs": capabilities.max_cpu_jobs,
        "driver_gpu_count": capabilities.gpu_count,
        "capabilities": capabilities.facts,
    }
    return columns if capabilities.disk is None else {**columns, "disk": capabilities.disk}


def _said(worker: Worker, beat: Heartbeat) -> dict[str, Any]:
    """Columns of what a heartbeat says besides GPUs and leases."""
    said: dict[str, Any] = {
        "accepting": beat.accepting,
        "paused_reason": "" if beat.accepting else beat.paused_reason or "",
        **refusals.NONE,
    }
    if beat.capabilities is not None:
        if beat.capabilities.worker_id != worker.pk:
            raise NotYourWorker("The worker says that it is another one than its credential.")
        said |= _described(beat.capabilities)
    if beat.disk is not None and _differs(worker.disk, beat.disk):
        said["disk"] = beat.disk
    if beat.doctor is not None:
        said["doctor"] = [asdict(check) for check in beat.doctor]
    return said


def _differs(known: dict[str, Any], told: dict[str, Any]) -> bool:
    """Whether the disk's figures moved by more than a log line or two."""
    return known.keys() != told.keys() or any(
        abs((known[name] or 0) - (told[name] or 0)) >= DISK_STEP_MIB or (known[name] is None) != (told[name] is None)
        for name in told
    )


def _inventory(
    worker: Worker, holds: list[HoldReport] | None, instructions: Sequence[lifecycle.Instruction]
) -> dict[str, Any]:
    """Columns of what the worker has: all that it listed (None: its engine did not answer), and what nobody here knows.

    An operator sees the latter as containers on hold, until they are gone.
    """
    if holds is None:
        return {"inventory": None}
    unknown = [str(each.lease_id) for each in instructions if each.want == "hold"]
    return {
        "inventory": sorted({str(hold.lease) for hold in holds}),
        "foreign_leases": unknown,
        "hold_facts": held.facts_of(holds, unknown, unreleased.freed(worker)),
        "removals": held.still_asked(worker, unknown),
    }


def _write(worker: Worker, columns: dict[str, Any]) -> None:
    """Write what differs, in one statement or none."""
    changed = {name: value for name, value in columns.items() if getattr(worker, name) != value}
    if changed:
        Worker.objects.filter(pk=worker.pk).update(**changed)
        for name, value in changed.items():
            setattr(worker, name, value)


def _holds(holds: list[HoldReport] | None) -> list[lifecycle.Hold] | None:
    if holds is None:
        return None
    return [
        lifecycle.Hold(
            lease_id=hold.lease,
            state=hold.state,
            image_id=hold.image_id or "",
            container=hold.container or "",
            healthy=hold.healthy,
        )
        for hold in holds
    ]


def _answer(worker: Worker, instructions: Sequence[lifecycle.Instruction]) -> Answer:
    return Answer(
        session=worker.session,
        intervals=intervals(),
        standing=worker.scheduling,
        gateway=gateways.on_the_wire(worker),
        leases=held.as_asked(worker, instructions),
        gateway_url=worker.gateway_url or None,
        gateway_detail=gateways.because(worker),
    )


def _refuse(worker: Worker) -> None:
    if worker.revoked_at is not None:
        raise CredentialRevoked(proof=credentials.revocation_proof(worker.pk, worker.credential_hash))
    raise SupersededSession
