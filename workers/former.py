"""Workers that are gone for good: an operator's word that a revoked one leaves every list, and its name to another.

Its row stays, out of sight, because history names it: jobs, leases, events and results are what they were. There is no
way back: the machine enrolls as a new worker, under the same name if it likes.
"""

from __future__ import annotations

import uuid

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from jobs import audit
from jobs.audit import Actor
from jobs.models import Job
from workers import enrollment, standing
from workers.errors import WrongStanding
from workers.models import EnrollmentToken, Gpu, Worker

NAMES_TOLD = 5


def forget(worker_id: uuid.UUID, *, actor: Actor, address: str | None = None, reason: str = "") -> Worker:
    """Leave a revoked worker out of every list from now on. Twice is once.

    Tokens that would bring it back are void. Raises UnknownWorker, WrongStanding (it is not revoked, or something is
    left that only a person can decide: a job that may still be on it, a Space that is placed on it).
    """
    with transaction.atomic():
        # Before the worker's row is locked: an enrollment takes its locks in this order, too.
        for token in EnrollmentToken.objects.filter(replaces=worker_id, used_at=None, revoked_at=None):
            enrollment.revoke_token(token.pk, actor=actor, address=address)
        worker = standing.locked(worker_id, revoked_too=True)
        if worker.forgotten_at is not None:
            return worker
        _check(worker)
        Worker.objects.filter(pk=worker_id).update(forgotten_at=Now())
        Gpu.objects.filter(worker=worker_id, forgotten_at=None).update(forgotten_at=Now())
        worker.refresh_from_db(fields=["forgotten_at"])
        audit.record("worker_forgotten", obj=worker, actor=actor, address=address, reason=reason)
    return worker


def _check(worker: Worker) -> None:
    """Raise WrongStanding where something of it is not over."""
    if worker.revoked_at is None:
        raise WrongStanding(f"{worker.name} is not revoked: revoke it first.")
    on_it = Q(worker=worker) | Q(leases__worker=worker, leases__cleared_at=None) | Q(requirement__worker=worker)
    jobs = Job.objects.active().filter(on_it).order_by("seq").distinct()
    if names := [f"{job.owner}/{job.repo}" for job in jobs]:
        raise WrongStanding(f"{worker.name} may still have {_told(names)}: stop it or start it elsewhere first.")
    if names := [str(space) for space in standing.placed_on([worker.pk])]:
        raise WrongStanding(f"{_told(names)} is placed on {worker.name}: place it elsewhere first.")


def _told(names: list[str]) -> str:
    more = len(names) - NAMES_TOLD
    return ", ".join(names[:NAMES_TOLD]) + (f" and {more} more" if more > 0 else "")
