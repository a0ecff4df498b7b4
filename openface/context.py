"""What every page of the portal shows: the fleet in three numbers, for people who are signed in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.utils.functional import SimpleLazyObject

from jobs.clock import database_now, up_since
from jobs.models import Job, Reservation
from jobs.states import JobState
from workers.models import Gpu, Worker

if TYPE_CHECKING:
    from django.http import HttpRequest


@dataclass(frozen=True)
class Pulse:
    """How many of the workers are online, of their GPUs reserved, and jobs in line."""

    online: int
    workers: int
    reserved: int
    gpus: int
    queued: int


def read_pulse() -> Pulse:
    """Read the numbers of the bar. Costs five small queries, so it is asked only where the bar is drawn."""
    workers = list(Worker.objects.filter(revoked_at=None).only("last_seen_at", "revoked_at"))
    now, up = database_now(), up_since()
    gpus = Gpu.objects.filter(worker__revoked_at=None, present=True, simulated=False)
    reserved = Reservation.objects.filter(cleared_at=None, gpu__in=gpus).values("gpu").distinct()
    return Pulse(
        online=sum(worker.is_online(now=now, up_since=up) for worker in workers),
        workers=len(workers),
        reserved=reserved.count(),
        gpus=gpus.count(),
        queued=Job.objects.filter(state=JobState.QUEUED).count(),
    )


def portal(request: HttpRequest) -> dict[str, Any]:
    """Give templates `pulse`, read when first used; None for visitors who are not signed in."""
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return {"pulse": None}
    return {"pulse": SimpleLazyObject(read_pulse)}
