"""What operators do with workers: drain, resume, disable, enable, revoke, and deciding about gateway addresses.

Views, admin, commands and the API all call these functions. Each is one transaction with its audit row and its notice;
asking for what is so already changes nothing and writes nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from contextlib import suppress
from typing import Protocol

from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from jobs import audit, lifecycle, notices
from jobs.audit import Actor
from jobs.models import Job
from spaces.models import Space
from workers import gateways
from workers.errors import UnknownWorker, WrongStanding
from workers.models import Worker

Scheduling = Worker.Scheduling


class Act(Protocol):
    """One of the five acts on a worker's standing."""

    def __call__(
        self, worker_id: uuid.UUID, *, actor: Actor, address: str | None = None, reason: str = ""
    ) -> Worker: ...


def drain(worker_id: uuid.UUID, *, actor: Actor, address: str | None = None, reason: str = "") -> Worker:
    """No new jobs; running ones finish. Raises UnknownWorker, WrongStanding (disabled or revoked)."""
    with transaction.atomic():
        worker = locked(worker_id)
        if worker.scheduling == Scheduling.DISABLED:
            raise WrongStanding(f"{worker.name} is disabled, which is more than draining.")
        _set_scheduling(worker, Scheduling.DRAINING, "worker_drained", actor=actor, address=address, reason=reason)
    return worker


def resume(worker_id: uuid.UUID, *, actor: Actor, address: str | None = None, reason: str = "") -> Worker:
    """End draining. Raises UnknownWorker, WrongStanding (disabled or revoked)."""
    with transaction.atomic():
        worker = locked(worker_id)
        if worker.scheduling == Scheduling.DISABLED:
            raise WrongStanding(f"{worker.name} is disabled, not draining: enable it.")
        _set_scheduling(worker, Scheduling.OPEN, "worker_resumed", actor=actor, address=address, reason=reason)
    return worker


def disable(worker_id: uuid.UUID, *, actor: Actor, address: str | None = None, reason: str = "") -> Worker:
    """No new jobs; running ones are stopped: also the way to force a drain. Raises UnknownWorker, WrongStanding.

    A job that went back to the line and that the worker might still have resumed stays in the line, for others.
    """
    with transaction.atomic():
        worker = locked(worker_id)
        jobs = list(running_on(worker_id))
        changed = _set_scheduling(
            worker, Scheduling.DISABLED, "worker_disabled", actor=actor, address=address, reason=reason, jobs=jobs
        )
        if changed:
            why = f"{worker.name} was disabled" + (f": {reason}" if reason else "") + "."
            for job in jobs:
                if not lifecycle.let_go(job.pk, worker_id=worker_id, reason_code="worker_disabled", reason=why):
                    lifecycle.request_stop(job.pk, actor=actor, code="worker_disabled", reason=why)
    return worker


def enable(worker_id: uuid.UUID, *, actor: Actor, address: str | None = None, reason: str = "") -> Worker:
    """End being disabled. Raises UnknownWorker, WrongStanding (draining or revoked)."""
    with transaction.atomic():
        worker = locked(worker_id)
        if worker.scheduling == Scheduling.DRAINING:
            raise WrongStanding(f"{worker.name} is draining, not disabled: resume it.")
        _set_scheduling(worker, Scheduling.OPEN, "worker_enabled", actor=actor, address=address, reason=reason)
    return worker


def revoke(worker_id: uuid.UUID, *, actor: Actor, address: str | None = None, reason: str = "") -> Worker:
    """Void the credential for good and release its leases. Its jobs' history, logs and events stay. Idempotent.

    Raises UnknownWorker.
    """
    with transaction.atomic():
        worker = locked(worker_id, revoked_too=True)
        if worker.revoked_at is not None:
            return worker
        names = _names(running_on(worker_id))
        Worker.objects.filter(pk=worker_id).update(revoked_at=Now())
        worker.refresh_from_db(fields=["revoked_at"])
        why = f"{worker.name} was revoked" + (f": {reason}" if reason else "") + "."
        lifecycle.cut_off_worker(worker_id, reason_code="worker_revoked", reason=why, cleared=True)
        audit.record(
            "worker_revoked",
            obj=worker,
            actor=actor,
            address=address,
            reason=reason,
            before={"scheduling": str(worker.scheduling), "revoked": False},
            after={"revoked": True, "jobs": names},
        )
        notices.publish("standing", worker=worker_id)
    return worker


def approve_gateway(worker_id: uuid.UUID, *, actor: Actor, address: str | None = None) -> Worker:
    """Make the proposed address the one we call.

    Raises UnknownWorker, WrongStanding (nothing is proposed, or what no worker may propose).
    """
    with transaction.atomic():
        worker = locked(worker_id)
        if not worker.gateway_proposed_url:
            raise WrongStanding(f"{worker.name} proposes no gateway address.")
        if refusal := gateways.refused_proposal(worker):
            raise WrongStanding(f"{worker.name} may not propose {worker.gateway_proposed_url}: {refusal}")
        before = {"gateway_url": worker.gateway_url}
        worker.gateway_url, worker.gateway_proposed_url = worker.gateway_proposed_url, ""
        worker.gateway_status, worker.gateway_detail = Worker.Gateway.UNKNOWN, ""
        worker.save(update_fields=["gateway_url", "gateway_proposed_url", "gateway_status", "gateway_detail"])
        after = {"gateway_url": worker.gateway_url}
        audit.record("gateway_approved", obj=worker, actor=actor, address=address, before=before, after=after)
        notices.publish("gateway", worker=worker_id)
    return worker


def refuse_gateway(worker_id: uuid.UUID, *, actor: Actor, address: str | None = None) -> Worker:
    """Drop the proposed address; an approved one stays. Raises UnknownWorker, WrongStanding (nothing is proposed)."""
    with transaction.atomic():
        worker = locked(worker_id)
        if not worker.gateway_proposed_url:
            raise WrongStanding(f"{worker.name} proposes no gateway address.")
        refused, worker.gateway_proposed_url = worker.gateway_proposed_url, ""
        if not worker.gateway_url:
            worker.gateway_status = Worker.Gateway.REFUSED
            worker.gateway_detail = f"An operator refused {refused}."[:255]
        worker.save(update_fields=["gateway_proposed_url", "gateway_status", "gateway_detail"])
        audit.record("gateway_refused", obj=worker, actor=actor, address=address, before={"proposed": refused})
        notices.publish("gateway", worker=worker_id)
    return worker


ACTS: dict[str, Act] = {"drain": drain, "resume": resume, "disable": disable, "enable": enable, "revoke": revoke}


def worker_named(name: str) -> Worker:
    """Return the worker of this name, whatever its case, or of this id. Raises UnknownWorker.

    A name may have been a former worker's too, which is forgotten: that one is found by its id alone.
    """
    worker = Worker.objects.kept().filter(name__iexact=name).first()
    if worker is None:
        with suppress(ValueError):
            worker = Worker.objects.filter(pk=uuid.UUID(name)).first()
    if worker is None:
        raise UnknownWorker(f"There is no worker {name}.")
    return worker


def running_on(worker_id: uuid.UUID) -> QuerySet[Job]:
    """The jobs that this worker has or may have, oldest first: what disabling or revoking it touches."""
    return Job.objects.active().filter(leases__worker=worker_id, leases__released_at=None).order_by("seq")


def placed_on(worker_ids: Iterable[uuid.UUID]) -> QuerySet[Space]:
    """The Spaces that an operator placed on one of these workers: without it they wait, whatever else is free."""
    placed = Space.objects.filter(placement=Space.Placement.WORKER, placement_worker__in=worker_ids)
    return placed.select_related("placement_worker").order_by("owner", "name")


def _names(jobs: Iterable[Job]) -> list[str]:
    """The jobs that an act touches, as the audit keeps them."""
    return [f"{job.owner}/{job.repo} ({job.state})" for job in jobs]


def locked(worker_id: uuid.UUID, *, revoked_too: bool = False) -> Worker:
    """Lock a worker's row for an act, in the caller's transaction. Raises UnknownWorker, WrongStanding (revoked)."""
    worker = Worker.objects.select_for_update(no_key=True).filter(pk=worker_id).first()
    if worker is None:
        raise UnknownWorker
    if worker.forgotten_at is not None and not revoked_too:
        raise WrongStanding(f"{worker.name} was revoked and forgotten: its machine enrolls as a new worker.")
    if worker.revoked_at is not None and not revoked_too:
        raise WrongStanding(f"{worker.name} was revoked. A new token with --replace brings it back.")
    return worker


def _set_scheduling(
    worker: Worker,
    scheduling: Scheduling,
    act: str,
    *,
    actor: Actor,
    address: str | None,
    reason: str,
    jobs: Iterable[Job] = (),
) -> bool:
    """Write a locked worker's standing and the audit row; False where it is so already. `jobs`: what it touches."""
    if worker.scheduling == scheduling:
        return False
    before = {"scheduling": str(worker.scheduling)}
    worker.scheduling = scheduling
    worker.scheduling_reason = reason[:255]
    worker.save(update_fields=["scheduling", "scheduling_reason"])
    audit.record(
        act,
        obj=worker,
        actor=actor,
        address=address,
        reason=reason,
        before=before,
        after={"scheduling": str(scheduling)} | ({"jobs": names} if (names := _names(jobs)) else {}),
    )
    notices.publish("standing", worker=worker.pk)
    if scheduling == Scheduling.OPEN:
        notices.publish("work", worker=worker.pk)  # what waited for this worker may go now
    return True
