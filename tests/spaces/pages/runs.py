"""Bring a Space to any state by the same calls that people and workers make."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

from jobs import lifecycle
from jobs.lifecycle import LogText, Report
from jobs.models import Job, Lease
from jobs.scheduling import RequirementSpec
from spaces.models import Space
from workers.models import Worker

CPU = RequirementSpec(kind="cpu")
GPU = RequirementSpec(kind="gpu", gpu_count=1, exclusive=True)


def submit(space: Space, *, requirement: RequirementSpec = CPU, replace: bool = False) -> Job:
    """Put the Space's head into the line, whoever may do that."""
    return lifecycle.submit(
        lifecycle.Submission(
            space_id=space.pk,
            repository_id=space.repository_id,
            owner=space.owner,
            repo=space.name,
            revision=space.head_revision,
            requirement=requirement,
            spec={"app_port": 7860},
        ),
        replace=replace,
    )


@dataclass
class Attempt:
    """One claim of a worker, and what it reports of it."""

    worker: Worker
    job: Job
    lease: Lease
    seq: int = 0
    offsets: dict[str, int] = field(default_factory=dict)

    def report(self, kind: str, **data: Any) -> Attempt:
        """Report one event."""
        self.seq += 1
        self._record(reports=[Report(self.seq, kind, data)])
        return self

    def write(self, stream: str, text: str) -> Attempt:
        """Ship text of a log."""
        offset = self.offsets.get(stream, 0)
        self._record(logs=[LogText(stream, offset, text)])
        self.offsets[stream] = offset + len(text.encode())
        return self

    def to_running(self) -> Attempt:
        """Report a build, a start and an answering port."""
        return self.report("building").report("starting").report("running", image_id="sha256:3f9ab01c77", gpus=[])

    def _record(self, **what: Any) -> None:
        lifecycle.record(
            self.worker.pk, session=self.worker.session, job_id=self.job.pk, lease_id=self.lease.pk, **what
        )


def claim(worker: Worker) -> Attempt:
    """Let the worker take the oldest job that fits it."""
    taken = lifecycle.claim_next(worker.pk, session=worker.session, free_gpu=9, free_cpu=9, key=str(uuid.uuid4()))
    assert taken is not None, "the worker found nothing that fits"
    return Attempt(worker, taken.job, taken.lease)
