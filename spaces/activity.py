"""The history of a Space, grouped by run: every move of every job with its time, its reason and who asked for it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count

from jobs import ailing, delivery
from jobs.models import Job, JobEvent, Reservation
from spaces import overuse, words
from spaces.access import visible_spaces
from spaces.durations import duration
from spaces.forge.base import User
from spaces.models import Space
from spaces.why import Reader

RUNS_SHOWN = 20
# What a person should read in the history although the state stays the same.
TOLD_WITHOUT_A_MOVE = frozenset({"placed", overuse.EVENT, ailing.EVENT, delivery.EVENT})


@dataclass(frozen=True)
class Move:
    """One line of the history."""

    at: datetime
    state: str
    name: str
    before: str  # how long the state before it lasted: "38 s starting"
    reason: str
    actor: str
    worker: str
    gpus: str
    revision: str
    image: str
    warning: bool = False


@dataclass(frozen=True)
class Run:
    """One job of the Space with its moves, newest first."""

    number: int
    job: Job
    moves: list[Move]


def runs(space: Space, *, user: User, before: int | None = None) -> list[Run]:
    """Return the newest runs of a Space, or those older than job seq `before`. Four queries, however many runs.

    Whose Spaces `user` may see is asked only where something happened of which not everybody may know all.
    """
    jobs = Job.objects.filter(space=space).select_related("worker").order_by("-seq")
    if before is not None:
        jobs = jobs.filter(seq__lt=before)
    shown = list(jobs[:RUNS_SHOWN])
    if not shown:
        return []
    older = Job.objects.filter(space=space, seq__lt=shown[-1].seq).aggregate(count=Count("id"))["count"]
    events: dict[object, list[JobEvent]] = defaultdict(list)
    for event in JobEvent.objects.filter(job__in=shown, ignored=False).order_by("id"):
        events[event.job_id].append(event)
    gpus = _gpus(shown)
    told = any(event.event == overuse.EVENT for each in events.values() for event in each)
    eyes = _reader(user) if told else Reader(spaces=())
    return [
        Run(number=older + len(shown) - index, job=job, moves=_moves(job, events[job.id], gpus, eyes))
        for index, job in enumerate(shown)
    ]


def _reader(user: User) -> Reader:
    seen = visible_spaces(user)
    return Reader(spaces={str(space) for space in seen}, operator=bool(getattr(user, "is_staff", False)))


def _gpus(jobs: list[Job]) -> dict[object, str]:
    """Return which GPUs each lease of these jobs had, as people name them."""
    named: dict[object, list[str]] = defaultdict(list)
    for reservation in Reservation.objects.filter(lease__job__in=jobs).select_related("gpu").order_by("gpu__index"):
        name = words.gpu_name(reservation.gpu.index, reservation.gpu.model)
        named[reservation.lease_id].append(words.simulated(name) if reservation.gpu.simulated else name)
    return {lease: ", ".join(names) for lease, names in named.items()}


def _moves(job: Job, events: list[JobEvent], gpus: dict[object, str], reader: Reader) -> list[Move]:
    moves: list[Move] = []
    since: datetime | None = None
    for event in events:
        moved = bool(event.to_state) and event.to_state != event.from_state
        if not moved and event.event not in TOLD_WITHOUT_A_MOVE:
            continue
        lasted = (event.at - since).total_seconds() if since is not None else None
        before = ""
        if lasted is not None and event.from_state and moved:
            name = words.state_name(event.from_state, completes=words.completes(job))
            before = f"{duration(lasted)} {words.within_sentence(name)}"
        moves.append(
            Move(
                at=event.at,
                state=event.to_state,
                name=words.state_name(event.to_state, completes=words.completes(job)),
                before=before,
                reason=_reason(event, reader),
                actor=event.actor,
                worker=event.worker_name,
                gpus=gpus.get(event.lease_id, ""),
                revision=event.revision,
                image=event.image_id.removeprefix("sha256:")[:8],
                warning=event.event == overuse.EVENT or ailing.is_illness(event),
            )
        )
        if moved:
            since = event.at
    return moves[::-1]


def _reason(event: JobEvent, reader: Reader) -> str:
    if event.event == overuse.EVENT and event.facts:
        return overuse.sentence(event.facts, reader=reader)
    return words.reason(event.reason_code, event.reason)
