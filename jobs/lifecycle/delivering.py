"""A batch job has ended, and its worker brings its results: written into its history and its reason.

Its state does not change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobs.delivery import EVENT, STATES
from jobs.lifecycle.transition import Cause, write_event
from jobs.models import Job, JobEvent, Lease
from jobs.states import JobState

SENTENCE = "It has ended, and its results are being delivered."


def note_delivering(job: Job, lease: Lease, data: Mapping[str, Any], *, seq: int) -> None:
    """Write how much is on its way, once. Within the caller's transaction; the job is locked.

    A worker that was restarted meanwhile looks again and says it again.
    """
    state = JobState(job.state)
    facts = {"files": data.get("files") or 0, "bytes": data.get("bytes") or 0}
    if state not in STATES or JobEvent.objects.filter(lease=lease, event=EVENT, facts=facts).exists():
        return
    write_event(job, EVENT, Cause(EVENT, SENTENCE, lease, seq=seq), before=state, after=state, facts=facts)
    if state is JobState.RUNNING:  # a silent worker or a stop is the better reason
        job.reason_code, job.reason = EVENT, SENTENCE
        Job.objects.filter(pk=job.pk).update(reason_code=EVENT, reason=SENTENCE)
