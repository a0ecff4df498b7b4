"""An app that is not to run on for longer than its limit while the control plane is not heard."""

from __future__ import annotations

import time

from gpu_worker.ending import halt
from gpu_worker.errors import JobFailed
from gpu_worker.job import Job
from gpu_worker.wishes import DEFAULT_GRACE_SECONDS


def raise_if_cut_off(job: Job) -> None:
    """Stop the app and raise JobFailed where the silence is longer; it counts from this process's start at most."""
    limit = job.facts.limits.stop_after_disconnect_seconds
    if limit is not None and time.monotonic() - job.workshop.contact_at() > limit:
        halt(job, DEFAULT_GRACE_SECONDS)
        raise JobFailed(
            "disconnected", f"The control plane was not heard from for {limit:.0f} s, the limit of this job."
        )
