"""How far the results of an ended batch job have come: what its worker announced, against what is here."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Sum

from jobs.models import Artifact, Job, JobEvent
from jobs.states import JobState

EVENT = "delivering"
# The app has ended, and its worker keeps the container until all that it left is here. Nothing of that is a move.
STATES = frozenset({JobState.RUNNING, JobState.UNAVAILABLE, JobState.STOPPING})


@dataclass(frozen=True)
class Delivery:
    """Files and bytes, as announced and as arrived. What was announced may shrink: a file may turn out unreadable."""

    since: datetime
    files: int
    size: int
    files_here: int
    size_here: int

    @property
    def share(self) -> float:
        """Which part of the bytes is here, from 0 to 1."""
        return min(1.0, self.size_here / self.size) if self.size else 1.0


def delivery(job: Job) -> Delivery | None:
    """Return how far the results have come; None where none are on their way. At most two queries."""
    if job.mode != Job.Mode.BATCH or JobState(job.state) not in STATES:
        return None
    told = JobEvent.objects.filter(job=job, event=EVENT, ignored=False, lease__released_at=None).order_by("-id").first()
    if told is None:
        return None
    here = Artifact.objects.filter(lease=told.lease_id, left_out="").aggregate(files=Count("id"), size=Sum("size"))
    return Delivery(
        since=told.at,
        files=int(told.facts.get("files", 0)),
        size=int(told.facts.get("bytes", 0)),
        files_here=here["files"],
        size_here=here["size"] or 0,
    )
