"""The line: which jobs wait for a worker, in which order, and how far from its head one stands. Reads only.

Who waits is what a claim may take: queued, not blocked by the run before it, attempts left. Its order is `Job.seq`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from django.db import connection

from jobs.models import Job, JobQuerySet
from jobs.patience import MAX_ATTEMPTS

COUNTED_PLACES = 100  # beyond that, a place in the line tells a person nothing

# The heads of each class by the claim's own index, then merged: the cost is bounded by classes × limit, however long
# the line is. A plain ORDER BY seq would sort the whole line, or walk the history of all jobs.
_HEAD = """
    SELECT head.id
    FROM jobs_requirement r
    CROSS JOIN LATERAL (
        SELECT id, seq FROM jobs_job
        WHERE requirement_id = r.id AND state = 'queued' AND blocked_by_id IS NULL AND attempts < %s
        ORDER BY seq LIMIT %s
    ) head
    ORDER BY head.seq
    LIMIT %s
"""


def head(limit: int = COUNTED_PLACES) -> list[uuid.UUID]:
    """Return the ids of the first jobs in line, in order. One query."""
    with connection.cursor() as cursor:
        cursor.execute(_HEAD, [MAX_ATTEMPTS, limit, limit])
        return [row[0] for row in cursor.fetchall()]


def in_line() -> JobQuerySet:
    """Return all jobs that stand in the line."""
    return Job.objects.claimable().filter(attempts__lt=MAX_ATTEMPTS)


def jobs_in_order(ids: Iterable[uuid.UUID]) -> list[Job]:
    """Return these jobs with what is shown of them, in the order of the ids. One query."""
    ids = list(ids)
    rows = Job.objects.filter(pk__in=ids).select_related("requirement__worker", "requested_by")
    by_id = {job.pk: job for job in rows}
    return [by_id[job_id] for job_id in ids if job_id in by_id]
