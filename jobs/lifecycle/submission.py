"""A new job: a Space at an exact commit enters the line."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

from django.apps import apps
from django.db import transaction

from jobs import notices
from jobs.audit import Actor, actor_name
from jobs.clock import now_and_up_since
from jobs.lifecycle.stopping import want_stopped
from jobs.lifecycle.transition import Cause, write_event
from jobs.models import Job
from jobs.requirements import requirement_row
from jobs.scheduling import RequirementSpec
from jobs.states import JobState


@dataclass(frozen=True)
class Submission:
    """What to run. `spec` is what the worker will be told; it is kept as of this moment."""

    space_id: int
    repository_id: str
    owner: str
    repo: str
    revision: str
    requirement: RequirementSpec
    kind: str = Job.Kind.SPACE
    mode: str = Job.Mode.SERVICE
    spec: dict[str, Any] = field(default_factory=dict)
    replica: int = 0


def submit(submission: Submission, *, actor: Actor = None, replace: bool = False) -> Job:
    """Queue a job, or return the one that is coming or serving already.

    With `replace` that one is stopped and the new one waits until it is final. A job that is being stopped is never
    returned: the new one waits for it, so start right after stop works.
    """
    with transaction.atomic():
        _lock_space(submission.space_id)
        active = list(
            Job.objects.active()
            .select_for_update(no_key=True)
            .filter(space=submission.space_id, replica=submission.replica)
            .order_by("seq")
        )
        present = [job for job in active if job.stop_requested_at is None]
        if present and not replace:
            return present[-1]
        now, up_since = now_and_up_since()
        for old in present:
            reason = "Replaced by a newer start."
            want_stopped(old, now=now, up_since=up_since, actor=actor, code="superseded", reason=reason)
        blockers = [job for job in active if not job.is_final]
        job = Job.objects.create(
            kind=submission.kind,
            mode=submission.mode,
            space_id=submission.space_id,
            replica=submission.replica,
            repository_id=submission.repository_id,
            owner=submission.owner,
            repo=submission.repo,
            revision=submission.revision,
            requirement=requirement_row(submission.requirement),
            spec=submission.spec,
            replaces=present[-1] if present else None,
            blocked_by=blockers[-1] if blockers else None,
            requested_by_id=getattr(actor, "pk", None),
        )
        write_event(job, "submitted", Cause(actor=actor_name(actor)), before=None, after=JobState.QUEUED)
        notices.publish("job", job=job.pk, space=job.space_id)
        if job.blocked_by_id is None:
            notices.publish("work", job=job.pk)
    return job


def _lock_space(space_id: int) -> None:
    """Two starts of one Space wait for each other here, so that the second finds the first's job."""
    spaces = apps.get_model("spaces", "Space").objects
    spaces.select_for_update(no_key=True).only("pk").get(pk=space_id)


def lock_worker(worker_id: uuid.UUID) -> Any:
    """The worker's row, locked; `None` if there is none. Comes before any job's lock."""
    workers = apps.get_model("workers", "Worker").objects
    return workers.select_for_update(no_key=True).filter(pk=worker_id).first()
