"""A job brought to any state by the calls that bring one there, and what can happen to it then."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from jobs import rescue
from jobs.lifecycle import Hold, Report, record, renew_lease, request_stop, sync_holds
from jobs.models import Job, Lease
from jobs.states import JobState
from tests.factories import JobFactory, WorkerFactory, ago
from tests.jobs.conftest import must_claim
from workers.models import Worker

STEPS = ("leased", "building", "starting", "running")


@dataclass
class Journey:
    """One job with its first worker and lease."""

    job: Job
    worker: Worker
    lease: Lease
    phase: str = "leased"  # what the worker does, whatever the server knows of it
    told: list[str] = field(default_factory=list)

    @property
    def state(self) -> str:
        self.job.refresh_from_db()
        return str(self.job.state)

    def report(self, kind: str, **data: Any) -> None:
        """The worker's next event."""
        if kind in STEPS:
            self.phase = kind
        self.lease.refresh_from_db()
        event = Report(self.lease.accepted_through + 1, kind, data)
        session = Worker.objects.get(pk=self.worker.pk).session
        record(self.worker.pk, session=session, job_id=self.job.pk, lease_id=self.lease.pk, reports=[event])

    def beat(self, *, holds: bool = True, registering: bool = False) -> list[tuple[str, str]]:
        """A sign of life that lists the lease (or nothing); what the worker is told: (lease, want)."""
        Worker.objects.filter(pk=self.worker.pk).update(last_seen_at=ago(0))
        told = sync_holds(
            self.worker.pk, holds=[Hold(self.lease.pk, self.phase)] if holds else [], registering=registering
        )
        return [(str(each.lease_id), each.want) for each in told]

    def renew(self) -> None:
        renew_lease(self.worker.pk, session=self.worker.session, job_id=self.job.pk, lease_id=self.lease.pk)

    def expire(self) -> None:
        Lease.objects.filter(pk=self.lease.pk).update(expires_at=ago(1))
        rescue.sweep()

    def fall_silent(self) -> None:
        Worker.objects.filter(pk=self.worker.pk).update(last_seen_at=ago(1_000))
        rescue.sweep()

    def stop(self) -> None:
        request_stop(self.job.pk)


def journey(to: str, *, mode: str = Job.Mode.SERVICE, phase: str = "leased") -> Journey:
    """A job in this state. `phase`: how far its worker was, for those that are queued again or stopping."""
    made = Journey(JobFactory.create(mode=mode), worker := WorkerFactory.create(), must_claim(worker).lease)
    steps = to if to in STEPS else "running" if to == JobState.UNAVAILABLE else phase
    for step in STEPS[1 : STEPS.index(steps) + 1]:
        made.report(step)
    match to:
        case JobState.UNAVAILABLE:
            made.fall_silent()
        case JobState.QUEUED:
            made.expire()
        case JobState.STOPPING:
            made.stop()
    assert made.state == to
    return made
