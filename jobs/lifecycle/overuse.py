"""A job uses more of a GPU than it reserved: told once, with who is at risk. Its state does not change.

Nobody is stopped for it: the driver gives memory to who asks first, and the neighbours fail only if they ask later.
What is measured counts in `jobs.vram`, so nobody new is placed on what is used up.
"""

from __future__ import annotations

from django.db.models.functions import Now

from jobs import notices
from jobs.lifecycle.transition import Cause, write_event
from jobs.models import Reservation
from jobs.states import JobState
from jobs.vram import gigabytes

EVENT = "vram_exceeded"


def warn_of_overuse(reservation_id: int, *, used_mib: int) -> bool:
    """Write one event for a reservation that is exceeded since now; return whether this call did it.

    Within the caller's transaction. The event's sentence names no other Space, for not everybody who reads it may know
    of them; its facts do.
    """
    news = Reservation.objects.filter(pk=reservation_id, cleared_at=None, over_since=None, lease__released_at=None)
    if not news.update(over_since=Now()):  # told already, or what is left of a run that has ended
        return False
    found = Reservation.objects.select_related("lease__job", "gpu").get(pk=reservation_id)
    job = found.lease.job
    beside = Reservation.objects.filter(gpu=found.gpu_id, cleared_at=None).exclude(pk=reservation_id)
    at_risk = [
        f"{owner}/{repo}" for owner, repo in beside.order_by("pk").values_list("lease__job__owner", "lease__job__repo")
    ]
    state = JobState(job.state)
    cause = Cause(EVENT, _sentence(found, used_mib, len(at_risk)), found.lease)
    facts = {
        "gpu": {"uuid": found.gpu.uuid, "index": found.gpu.index, "model": found.gpu.model},
        "reserved_mib": found.mib,
        "used_mib": used_mib,
        "at_risk": at_risk,
    }
    write_event(job, EVENT, cause, before=state, after=state, facts=facts)
    notices.publish("job", job=job.pk, space=job.space_id, worker=found.lease.worker_id)
    return True


def end_overuse(reservation_id: int) -> None:
    """Remember that a job is back within its reservation: the next time it exceeds it is told anew."""
    Reservation.objects.filter(pk=reservation_id).update(over_since=None)


def _sentence(reservation: Reservation, used_mib: int, neighbours: int) -> str:
    model = reservation.gpu.model or "the GPU"
    what = f"It uses {gigabytes(used_mib)}; {gigabytes(reservation.mib)} are reserved on {model}."
    match neighbours:
        case 0:
            return f"{what} Nobody else is on that GPU."
        case 1:
            return f"{what} Another Space on that GPU is at risk."
        case _:
            return f"{what} {neighbours} other Spaces on that GPU are at risk."
