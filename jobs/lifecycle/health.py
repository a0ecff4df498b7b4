"""A running app falls ill, or is well again: written into its history. Its state does not change.

The worker says what ails it: nothing answers on its port, its container is paused, or its GPU is lost inside it. Nobody
is stopped for it: an app may come back, and its owner decides when a restart is worth it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobs import notices
from jobs.ailing import EVENT, WELL, illness
from jobs.lifecycle.transition import Cause, write_event
from jobs.models import Job, Lease
from jobs.states import SERVING, JobState

SILENT = "app_silent"
SENTENCES = {
    WELL: "It answers again.",
    SILENT: "Nothing answers on its port.",
    "app_frozen": "Its container is paused on the machine.",
    "app_lost_gpu": "It runs, but its GPU is lost inside its container; a restart brings it back.",
}
_CODES = {"no_answer": SILENT, "paused": "app_frozen", "gpu_lost": "app_lost_gpu"}


def note_health(job: Job, lease: Lease, data: Mapping[str, Any], *, seq: int) -> None:
    """Write what a worker says of a running app's health, where it is news. Within the caller's transaction and lock.

    A worker that comes back says once how each app is that it found, often before we take the app for running again.
    """
    state = JobState(job.state)
    if state not in SERVING:
        return  # while it is coming or going, its state says more
    code = WELL if data.get("healthy") else _CODES.get(str(data.get("reason")), SILENT)
    known = illness(job)
    if code == (WELL if known is None else known.reason_code):
        return
    cause = Cause(code, SENTENCES[code], lease, seq=seq)
    write_event(job, EVENT, cause, before=state, after=state)
    notices.publish("job", job=job.pk, space=job.space_id, worker=lease.worker_id)
