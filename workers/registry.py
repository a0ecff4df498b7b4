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
from workers import credentials, gateways, gpus
from workers.errors import CredentialRevoked, NotYourWorker
from workers.intervals import Intervals, intervals
from workers.models import Worker
from workers.reports import Capabilities, Heartbeat, HoldReport, Registration

# The second step of a heartbeat waits at most so long for rows that others hold, then answers 503: the worker is alive
# by then, and asks again.
LOCK_TIMEOUT_MS = 3000


@dataclass(frozen=True)
class Answer:
    """What a worker is told after register and heartbeat: times, standing, and what to do with every lease."""

    session: int
    intervals: Intervals
    standing: str
    gateway: str | None
    leases: Sequence[lifecycle.Instruction]


def register(worker_id: uuid.UUID, registration: Registration) -> Answer:
    """Take a worker's description after a start; older sessions of it are refused from now on.

    Raises NotYourWorker (its state directory belongs to another worker), InvalidReport, CredentialRevoked.
    """
    if registration.capabilities.worker_id != worker_id:
        raise NotYourWorker("The worker says that it is another one than its credential.")
    with transaction.atomic():
        worker = lock(worker_id)
        gpus.check_gpus(registration.gpus)
        worker.session += 1
        worker.beat = 0
        worker.accepting = True
        worker.paused_reason = ""
        worker.doctor = [asdict(check) for check in registration.doctor]
        changed = ["session", "beat", "accepting", "paused_reason", "doctor"]
        changed += _describe(worker, registration.capabilities)
        changed += gateways.apply_proposal(worker, registration.gateway_url)
        worker.save(update_fields=changed)
        Worker.objects.filter(pk=worker_id).update(last_seen_at=Now(), registered_at=Now())
        crossings = gpus.store_gpus(worker, registration.gpus, counts=True)
        instructions = lifecycle.sync_holds(worker_id, holds=_holds(registration.holds), registering=True)
        gpus.tell(crossings)
        _remember_foreign(worker, instructions)
        notices.publish("gateway", worker=worker_id)
    return _answer(worker, instructions)


def heartbeat(worker_id: uuid.UUID, beat: Heartbeat) -> Answer:
    """Take a sign of life and answer with what the worker shall do.

    A beat that is older than the last one (it was overtaken on the way) proves life and changes nothing else.
    Raises SupersededSession, CredentialRevoked, InvalidReport.
    """
    note_alive(worker_id, session=beat.session)
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{LOCK_TIMEOUT_MS}ms"])
        worker = lock(worker_id, session=beat.session)
        if beat.beat < worker.beat:
            return _answer(worker, lifecycle.sync_holds(worker_id, holds=None, registering=False))
        gpus.check_gpus(beat.gpus)
        _take(worker, beat)
        crossings = gpus.store_gpus(worker, beat.gpus, counts=True)
        instructions = lifecycle.sync_holds(worker_id, holds=_holds(beat.holds), registering=False)
        gpus.tell(crossings)
        _remember_foreign(worker, instructions)
    return _answer(worker, instructions)


def note_alive(worker_id: uuid.UUID, *, session: int) -> None:
    """Stamp `last_seen_at` in one statement of its own. Raises CredentialRevoked, SupersededSession.

    A session ahead of our row's (an older database was restored) is taken over.
    """
    newest = Worker.objects.filter(pk=worker_id, session__range=(session - MOST_AHEAD, session), revoked_at=None)
    alive = newest.update(last_seen_at=Now(), session=session)
    if not alive:
        _refuse(Worker.objects.only("revoked_at", "credential_hash").get(pk=worker_id))


def lock(worker_id: uuid.UUID, *, session: int | None = None) -> Worker:
    """Lock a worker's row in the caller's transaction. Raises CredentialRevoked, SupersededSession."""
    worker = Worker.objects.select_for_update(no_key=True).get(pk=worker_id)
    if worker.revoked_at is not None or (session is not None and not is_current(worker.session, session)):
        _refuse(worker)
    return worker


def _describe(worker: Worker, capabilities: Capabilities) -> list[str]:
    """Put what the machine is on the row; return the names of the fields."""
    worker.hostname = capabilities.hostname or ""
    worker.version = capabilities.worker_version
    worker.executor = capabilities.executor
    worker.engine_id = capabilities.engine_id or ""
    worker.features = capabilities.features
    worker.max_gpu_jobs = capabilities.max_gpu_jobs
    worker.max_cpu_jobs = capabilities.max_cpu_jobs
    worker.driver_gpu_count = capabilities.gpu_count
    worker.capabilities = capabilities.facts
    if capabilities.disk is not None:
        worker.disk = capabilities.disk
    return [
        "hostname",
        "version",
        "executor",
        "engine_id",
        "features",
        "max_gpu_jobs",
        "max_cpu_jobs",
        "driver_gpu_count",
        "capabilities",
        "disk",
    ]


def _take(worker: Worker, beat: Heartbeat) -> None:
    changed = ["beat", "accepting", "paused_reason"]
    worker.beat = beat.beat
    worker.accepting = beat.accepting
    worker.paused_reason = "" if beat.accepting else beat.paused_reason or ""
    if beat.capabilities is not None:
        if beat.capabilities.worker_id != worker.pk:
            raise NotYourWorker("The worker says that it is another one than its credential.")
        changed += _describe(worker, beat.capabilities)
    if beat.disk is not None:
        worker.disk = beat.disk
        changed.append("disk")
    worker.save(update_fields=changed)


def _remember_foreign(worker: Worker, instructions: Sequence[lifecycle.Instruction]) -> None:
    """Keep the leases that nobody here knows: an operator sees them as containers on hold."""
    unknown: list[Any] = [str(each.lease_id) for each in instructions if each.want == "hold"]
    if unknown != worker.foreign_leases:
        worker.foreign_leases = unknown
        worker.save(update_fields=["foreign_leases"])


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
        leases=instructions,
    )


def _refuse(worker: Worker) -> None:
    if worker.revoked_at is not None:
        raise CredentialRevoked(proof=credentials.revocation_proof(worker.pk, worker.credential_hash))
    raise SupersededSession
