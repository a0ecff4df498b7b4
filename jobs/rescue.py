"""The keeper's sweeps: remote workers switched off, expired leases, silent workers, spent attempts.

Safe when two run: every step is guarded.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.apps import apps
from django.conf import settings
from django.db.models import Q

from jobs import lifecycle
from jobs.clock import now_and_up_since
from jobs.lifecycle.lapses import EXPIRABLE
from jobs.models import Job, Lease
from jobs.patience import MAX_ATTEMPTS
from jobs.states import JobState
from jobs.switch import SWITCHED_OFF, remote_workers_enabled


@dataclass(frozen=True)
class Swept:
    """How many jobs each sweep moved."""

    expired: int
    given_up: int
    silent: int
    withheld: int = 0


def sweep() -> Swept:
    """One round. Each job is moved in a transaction of its own."""
    now, up_since = now_and_up_since()
    remote = remote_workers_enabled()
    return Swept(
        withheld=0 if remote else _withhold(now),
        expired=_expire(now, up_since),
        given_up=_give_up(now),
        silent=_mark_silent(now, up_since, remote=remote),
    )


def _withhold(now: datetime) -> int:
    """Jobs of remote workers, while these are switched off: those that this has not reached yet."""
    held = Lease.objects.filter(released_at=None, worker__local=False).exclude(job__state=JobState.STOPPING)
    new = held.exclude(job__state=JobState.UNAVAILABLE, job__reason_code=SWITCHED_OFF).order_by("job__seq")
    return sum(lifecycle.withhold(job_id, now=now) for job_id in list(new.values_list("job_id", flat=True)))


def _expire(now: datetime, up_since: datetime) -> int:
    if now < up_since + timedelta(seconds=settings.OPENFACE_GPU_WORKER_LEASE_SECONDS):
        return 0
    states = [state.value for state in EXPIRABLE]
    due = Lease.objects.filter(released_at=None, expires_at__lt=now, job__state__in=states)
    ids = due.order_by("expires_at").values_list("pk", flat=True)
    return sum(lifecycle.expire_lease(pk, now=now, up_since=up_since) for pk in list(ids))


def _give_up(now: datetime) -> int:
    period = timedelta(seconds=settings.OPENFACE_GPU_WORKER_LEASE_SECONDS)
    spent = Job.objects.filter(state=JobState.QUEUED, attempts__gte=MAX_ATTEMPTS, state_since__lt=now - period)
    return sum(lifecycle.give_up(pk, now=now) for pk in list(spent.values_list("pk", flat=True)))


def _mark_silent(now: datetime, up_since: datetime, *, remote: bool) -> int:
    """Jobs whose worker is not heard, and stops that a worker cannot hear of, as its reports are refused.

    What runs there goes on being shown: visitors reach it. The state is asked again under each job's lock.
    """
    stale = timedelta(seconds=settings.OPENFACE_GPU_WORKER_STALE_SECONDS)
    serving = Q(job__state__in=[JobState.RUNNING, JobState.STOPPING])
    if remote:  # what was withheld while its worker went silent has another reason now
        serving |= Q(job__state=JobState.UNAVAILABLE, job__reason_code=SWITCHED_OFF)
    held = Lease.objects.filter(serving, released_at=None)
    moved = 0
    workers = apps.get_model("workers", "Worker").objects.filter(pk__in=held.values("worker"))
    for worker in workers:
        due, since, refused = held.filter(worker=worker.pk), worker.last_seen_at, False
        if worker.is_online(now=now, up_since=up_since):
            since, refused = worker.refused_since, True
            if since is None or now - since < stale:
                continue
            due = due.filter(job__state=JobState.STOPPING)
        for job_id in list(due.order_by("job__seq").values_list("job_id", flat=True)):
            moved += lifecycle.mark_silent(job_id, worker_name=worker.name, since=since, now=now, refused=refused)
    return moved
