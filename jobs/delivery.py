"""How far the results of an ended batch job have come: what its worker announced, against what is here."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

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
    return deliveries([job]).get(job.pk)


def deliveries(jobs: Iterable[Job]) -> dict[uuid.UUID, Delivery]:
    """Return those of these jobs whose results are on their way. At most two queries, however many jobs."""
    able = [job.pk for job in jobs if job.mode == Job.Mode.BATCH and JobState(job.state) in STATES]
    if not able:
        return {}
    told = JobEvent.objects.filter(job__in=able, event=EVENT, ignored=False, lease__released_at=None)
    newest = list(told.order_by("job_id", "-id").distinct("job_id"))
    if not newest:
        return {}
    kept = Artifact.objects.filter(lease__in=[event.lease_id for event in newest], left_out="").order_by()
    here = {row["lease_id"]: row for row in kept.values("lease_id").annotate(files=Count("id"), bytes=Sum("size"))}
    return {event.job_id: _delivery(event, here) for event in newest}


def _delivery(told: JobEvent, arrived: Mapping[Any, Mapping[str, Any]]) -> Delivery:
    here = arrived.get(told.lease_id, {})
    return Delivery(
        since=told.at,
        files=int(told.facts.get("files", 0)),
        size=int(told.facts.get("bytes", 0)),
        files_here=here.get("files") or 0,
        size_here=here.get("bytes") or 0,
    )
