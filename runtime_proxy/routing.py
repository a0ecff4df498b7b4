"""Where a Space's requests go right now: to a worker's gateway, or nowhere, and then why.

Read from the database and valid for a stated time, never longer than the worker may stay silent: a remembered route
cannot outlive the moment at which the worker counts as unheard.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.conf import settings

from jobs.clock import now_and_up_since
from jobs.models import Job, Lease
from jobs.states import JobState
from jobs.tokens import UnknownLeaseKey, runtime_token
from jobs.waiting import why_waiting
from runtime_proxy.addresses import prefix_of
from runtime_proxy.headers import Mount
from runtime_proxy.recent import Fresh
from spaces import words
from spaces.models import Space
from spaces.origin import one_per_space
from spaces.owner_settings import InForce

SETTLED_SECONDS = 60.0  # running, or at rest: a notice tells of every change
PASSING_SECONDS = 2.0  # on the way, or silent: places in line and heartbeats are not announced
ON_DEMAND = "ondemand"  # no job yet: it runs when somebody starts it
DEFAULT_APP_PORT = 7860


@dataclass(frozen=True, slots=True)
class Upstream:
    """A running app behind a worker's gateway."""

    space_id: int
    worker_id: uuid.UUID
    worker_name: str
    lease_id: uuid.UUID
    base: str  # "<gateway>/lease/<lease>": a raw path starting with a slash is appended, never joined
    token: str = field(repr=False)
    mount: Mount


@dataclass(frozen=True, slots=True)
class Standing:
    """Nothing to proxy to: what a person is told instead. `state` is a wire string or ON_DEMAND."""

    space_id: int
    owner: str
    name: str
    title: str
    emoji: str
    colors: tuple[str, str]  # of the README: from, to
    state: str
    kind: str = "cpu"
    completes: bool = False  # whether its end is called completed
    worker_id: uuid.UUID | None = None
    worker_name: str = ""
    since: datetime | None = None
    expected_online: str = ""
    reason_code: str = ""
    reason: str = ""
    place: int | None = None
    place_is_capped: bool = False
    waits_for: tuple[tuple[str, str], ...] = ()  # (worker, code of its refusal)

    @property
    def is_coming(self) -> bool:
        """Whether it gets on by itself, so that looking again makes sense."""
        return self.state not in (ON_DEMAND, JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED)


Route = Upstream | Standing


def find(space_id: int) -> Fresh[Route]:
    """Read the Space's route. A handful of queries; raises Space.DoesNotExist."""
    space = Space.objects.get(pk=space_id)
    job = _current_job(space_id)
    if job is None:
        return Fresh(_standing(space, None, ON_DEMAND), SETTLED_SECONDS)
    if job.is_final:
        return Fresh(_standing(space, job, job.state), SETTLED_SECONDS)
    if job.state not in (JobState.RUNNING, JobState.UNAVAILABLE):
        return Fresh(_on_the_way(space, job), PASSING_SECONDS)
    return _serving(space, job)


def _current_job(space_id: int) -> Job | None:
    """The job that people mean: the one that serves, else the newest."""
    newest = list(Job.objects.filter(space=space_id).select_related("worker", "requirement").order_by("-seq")[:3])
    serving = [job for job in newest if job.state in (JobState.RUNNING, JobState.UNAVAILABLE)]
    return next(iter(serving or newest), None)


def _on_the_way(space: Space, job: Job) -> Standing:
    if job.state != JobState.QUEUED:
        return _standing(space, job, job.state)
    waiting = why_waiting(job)
    if waiting is None:
        return _standing(space, job, job.state)
    return _standing(
        space,
        job,
        job.state,
        reason_code=waiting.code,
        place=waiting.place,
        place_is_capped=waiting.place_capped,
        waits_for=tuple((worker.name, worker.code) for worker in waiting.workers),
    )


def _serving(space: Space, job: Job) -> Fresh[Route]:
    now, up_since = now_and_up_since()
    lease = Lease.objects.filter(job=job, released_at=None).select_related("worker").first()
    worker = lease.worker if lease else job.worker
    silent_since = worker.silent_since(up_since=up_since) if worker else None
    if worker is None or lease is None or silent_since is None or not worker.is_online(now=now, up_since=up_since):
        unheard = _standing(space, job, JobState.UNAVAILABLE, since=silent_since or job.state_since)
        return Fresh(unheard, PASSING_SECONDS)
    if job.state == JobState.UNAVAILABLE:  # heard again, but it has not yet said what became of the app
        return Fresh(_standing(space, job, job.state, since=job.state_since), PASSING_SECONDS)
    if job.mode == Job.Mode.BATCH:
        return Fresh(_standing(space, job, job.state), PASSING_SECONDS)
    if not worker.gateway_url:
        return Fresh(_standing(space, job, JobState.UNAVAILABLE, reason_code="gateway_not_approved"), PASSING_SECONDS)
    try:
        token = runtime_token(lease)
    except UnknownLeaseKey:
        return Fresh(_standing(space, job, JobState.UNAVAILABLE, reason_code="lease_key_unknown"), PASSING_SECONDS)
    stale = timedelta(seconds=settings.OPENFACE_GPU_WORKER_STALE_SECONDS)
    heard_for = (silent_since + stale - now).total_seconds()
    upstream = Upstream(
        space_id=space.pk,
        worker_id=worker.pk,
        worker_name=worker.name,
        lease_id=lease.pk,
        base=f"{worker.gateway_url.rstrip('/')}/lease/{lease.pk}",
        token=token,
        mount=_mount(space, job),
    )
    return Fresh(upstream, min(SETTLED_SECONDS, heard_for))


def _mount(space: Space, job: Job) -> Mount:
    """How the app wants to be spoken to, as of its start and as it was found then; later settings count later."""
    port, in_force = job.spec.get("app_port"), InForce.of(job)
    return Mount(
        prefix=prefix_of(space.owner, space.name),
        keep_prefix=in_force.keeps,
        rewrite_host=in_force.rewrite_host,
        app_port=port if isinstance(port, int) else DEFAULT_APP_PORT,
        own_host=one_per_space(),
    )


def _standing(
    space: Space,
    job: Job | None,
    state: str,
    *,
    since: datetime | None = None,
    reason_code: str = "",
    place: int | None = None,
    place_is_capped: bool = False,
    waits_for: tuple[tuple[str, str], ...] = (),
) -> Standing:
    worker = job.worker if job else None
    return Standing(
        space_id=space.pk,
        owner=space.owner,
        name=space.name,
        title=space.title or space.name,
        emoji=space.emoji,
        colors=(space.color_from or "gray", space.color_to or "gray"),
        state=state,
        kind=job.requirement.kind if job else ("gpu" if "gpu" in space.topics else "cpu"),
        completes=job is not None and words.completes(job),
        worker_id=worker.pk if worker else None,
        worker_name=worker.name if worker else "",
        since=since or (job.state_since if job else None),
        expected_online=worker.expected_online if worker else "",
        reason_code=reason_code or (job.reason_code if job else ""),
        reason=job.reason if job and not reason_code else "",
        place=place,
        place_is_capped=place_is_capped,
        waits_for=waits_for,
    )
