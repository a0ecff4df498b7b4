"""What every page of the portal shows: the fleet in three numbers, for people who are signed in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db.models import Count, Exists, OuterRef, Q
from django.utils.functional import SimpleLazyObject

from jobs import line
from jobs.clock import now_and_up_since
from jobs.models import Reservation
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
    """Read the numbers of the bar. They are counted in the database: it stands on every page, and a fleet may be large.

    Four small queries, so it is asked only where the bar is drawn.
    """
    now, up_since = now_and_up_since()
    workers = Worker.objects.filter(revoked_at=None)
    gpus = Gpu.objects.filter(worker__revoked_at=None, present=True, simulated=False)
    taken = Exists(Reservation.objects.filter(cleared_at=None, gpu=OuterRef("pk")))
    # One whose reports are refused is alive, and of no use.
    online = Q(pk__in=workers.online(now=now, up_since=up_since), refused_since=None)
    fleet = workers.aggregate(all=Count("pk"), online=Count("pk", filter=online))
    cards = gpus.aggregate(all=Count("pk"), reserved=Count("pk", filter=taken))
    return Pulse(
        online=fleet["online"],
        workers=fleet["all"],
        reserved=cards["reserved"],
        gpus=cards["all"],
        queued=line.in_line().count(),
    )


def portal(request: HttpRequest) -> dict[str, Any]:
    """Give templates `pulse`, read when first used; None for visitors who are not signed in."""
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return {"pulse": None}
    return {"pulse": SimpleLazyObject(read_pulse)}
