"""What a worker still has, and whether it may be switched off.

Draining is complete when the worker's inventory is empty: no lease on our books that it has not cleared (containers
that still stop included), and no container in its own last report (of leases that are over, or that nobody here knows).
GPU memory that an operator waits for no longer is no container.
A worker that is not heard, whose engine does not answer, or whose reports are refused, is not known to be empty.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings

from jobs.delivery import Delivery, deliveries
from jobs.models import Lease
from workers import unreleased
from workers.models import Worker

REMOVING = "removing"  # the right to run it has ended; the worker was told to remove it
UNKNOWN = "unknown"  # a container of a lease that nobody here knows: kept until an operator or time removes it


@dataclass(frozen=True)
class Left:
    """One thing that is left on a worker. `state`: of its job, or REMOVING, or UNKNOWN."""

    lease_id: uuid.UUID
    name: str  # owner/repo; "" where nobody here knows the lease
    state: str
    since: datetime | None = None
    deadline_at: datetime | None = None  # of a job that is being stopped: when it is killed
    bringing: Delivery | None = None  # its app has ended, and its results are on their way
    on_the_books: bool = True  # an uncleared lease of ours; else only the worker's report lists it

    def as_json(self) -> dict[str, Any]:
        return {
            "lease": str(self.lease_id),
            "space": self.name or None,
            "state": self.state,
            "since": None if self.since is None else self.since.isoformat(),
            "deadline_at": None if self.deadline_at is None else self.deadline_at.isoformat(),
        }


@dataclass(frozen=True)
class Drain:
    """How far draining (or disabling) is. `complete` None: nobody knows, because the worker does not say."""

    complete: bool | None
    left: tuple[Left, ...]

    @property
    def names(self) -> list[str]:
        return [left.name or "a container of an unknown lease" for left in self.left]

    def sentence(self) -> str:
        """In words, for a shell: "2 left (owner/a, owner/b)"."""
        if self.complete:
            return "safe to switch off"
        left = f"{len(self.left)} left ({', '.join(self.names)})" if self.left else "nothing left on the books"
        return left if self.complete is False else f"{left}, not known: the worker does not say what it has"

    def as_json(self) -> dict[str, Any]:
        return {"complete": self.complete, "left": [left.as_json() for left in self.left]}


def drain_of(worker: Worker, left: Sequence[Left], *, online: bool) -> Drain | None:
    """How far the draining of a worker is; None where it is not draining, not disabled and not revoked."""
    if worker.scheduling == Worker.Scheduling.OPEN and worker.revoked_at is None:
        return None
    says = online and worker.inventory is not None and worker.refused_since is None
    return Drain(complete=not left if says else None, left=tuple(left))


def left_on(workers: Iterable[Worker]) -> dict[uuid.UUID, list[Left]]:
    """What is left on each of these workers, oldest first. At most four queries, however many workers."""
    workers = list(workers)
    found: dict[uuid.UUID, list[Left]] = defaultdict(list)
    uncleared = Lease.objects.filter(worker__in=[worker.pk for worker in workers], cleared_at=None)
    on_the_books: set[str] = set()
    leases = list(uncleared.select_related("job").order_by("acquired_at"))
    bringing = deliveries(lease.job for lease in leases if lease.released_at is None)
    for lease in leases:
        found[lease.worker_id].append(_of_lease(lease, bringing.get(lease.job_id)))
        on_the_books.add(str(lease.pk))
    besides = {worker.pk: _only_reported(worker, on_the_books) for worker in workers}
    if any(besides.values()):
        over = Lease.objects.filter(pk__in=[pk for ids in besides.values() for pk in ids]).select_related("job")
        names = {str(lease.pk): f"{lease.job.owner}/{lease.job.repo}" for lease in over}
        for worker_id, ids in besides.items():
            found[worker_id] += [
                Left(uuid.UUID(pk), names.get(pk, ""), REMOVING if pk in names else UNKNOWN, on_the_books=False)
                for pk in ids
            ]
    return found


def _only_reported(worker: Worker, on_the_books: Collection[str]) -> list[str]:
    """What the worker lists and our books do not; memory that an operator waits for no longer is not counted."""
    freed = unreleased.freed(worker)
    return [lease for lease in worker.inventory or [] if lease not in on_the_books and lease not in freed]


def _of_lease(lease: Lease, bringing: Delivery | None) -> Left:
    job = lease.job
    deadline = None
    if lease.released_at is None and job.stop_requested_at is not None:
        deadline = job.stop_requested_at + timedelta(seconds=settings.OPENFACE_STOP_GRACE_SECONDS)
    return Left(
        lease_id=lease.pk,
        name=f"{job.owner}/{job.repo}",
        state=job.state if lease.released_at is None else REMOVING,
        since=lease.released_at or job.state_since,
        deadline_at=deadline,
        bringing=bringing if lease.released_at is None else None,
    )
