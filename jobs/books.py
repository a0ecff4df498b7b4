"""What the books say that concerns every offer of a worker: the time, the switch, and which places are taken.

One statement, because a claim pays for each.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.db import connection

from jobs.clock import unbroken_since

# The first select has exactly one row, so that time and switch are told even where nothing is taken, or was ever
# written. A place is free again when the worker says that nothing is left in it: uncleared leases count, released or
# not.
_BOOKS = """
    SELECT statement_timestamp(), uptime.up_since, uptime.alive_at, switch.enabled, switch.simulated_gpus,
           taken.worker_id, taken.kind, taken.places
    FROM (SELECT 1) always
    LEFT JOIN jobs_uptime uptime ON uptime.id = 1
    LEFT JOIN jobs_remoteswitch switch ON switch.id = 1
    LEFT JOIN (
        SELECT lease.worker_id, requirement.kind, count(*) AS places
        FROM jobs_lease lease
        JOIN jobs_job job ON job.id = lease.job_id
        JOIN jobs_requirement requirement ON requirement.id = job.requirement_id
        WHERE lease.worker_id = ANY(%s) AND lease.cleared_at IS NULL
        GROUP BY lease.worker_id, requirement.kind
    ) taken ON true
"""


@dataclass(frozen=True)
class Books:
    """The database's time, since when we are up, whether remote workers and simulated GPUs take part; places taken.

    Of these, by (worker, kind).
    """

    now: datetime
    up_since: datetime
    remote_enabled: bool
    simulated_allowed: bool
    taken: Counter[tuple[uuid.UUID, str]]


def read(worker_ids: Collection[uuid.UUID]) -> Books:
    """Read them for these workers. One query."""
    with connection.cursor() as cursor:
        cursor.execute(_BOOKS, [list(worker_ids)])
        rows = cursor.fetchall()
    now, up_since, alive_at, enabled, simulated = rows[0][:5]
    taken = Counter({(worker_id, kind): places for *_, worker_id, kind, places in rows if worker_id is not None})
    # Before any web process has started on this database, this process's own settings count (`jobs.switch`).
    remote = bool(settings.OPENFACE_GPU_WORKERS_ENABLED) if enabled is None else enabled
    simulated_allowed = bool(settings.OPENFACE_ALLOW_SIMULATED_GPUS) if simulated is None else simulated
    return Books(now, unbroken_since(now, up_since=up_since, alive_at=alive_at), remote, simulated_allowed, taken)
