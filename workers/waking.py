"""Who hears of new work, and when: the best-fitting idle worker first, others that could take it 250 ms later.

Told all at once, a thousand workers would ask at the same moment for the one job that the first of them gets; and the
first to ask is seldom the one that it fits best. Workers that cannot take the job now are not told: they ask again when
they have room, and every poll interval anyway. So a wake-up is a hint, and may be wrong in both directions.

Each web process judges once for all its streams, in one thread, and no more often than a share of its time allows. It
ranks the whole fleet and wakes those workers whose streams it has: all processes see the same rows, so they agree on
who is first without talking to each other. Where the judging fails, everybody is told: no signal is lost to an error.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from django.db import connection

from jobs import notices, offers, patience
from jobs.models import Job
from jobs.notices import Mailbox, Notice
from jobs.patience import MAX_ATTEMPTS
from jobs.requirements import spec_of
from jobs.scheduling import Placement, Refusal, RequirementSpec, WorkerOffer

logger = logging.getLogger(__name__)

WAKE = "wake"  # the kind of notice that a stream's mailbox gets from here
OTHERS_AFTER_SECONDS = 0.25
# At most so much of a web process's time goes into judging; in a burst of new jobs, one judging serves many of them.
SHARE_OF_TIME = 0.2
# Of a burst. Whoever is woken asks until nothing is left for it, so a few jobs wake enough workers for all of them.
JUDGED_AT_ONCE = 50
HEADS = uuid.UUID(int=0)  # stands for the oldest job of each class, whichever those are when they are judged
_BEFORE, _BEHIND = -1, 2**63  # any place in the line before, or behind, a protected job


@dataclass(frozen=True)
class Wanted:
    """A job that waits for a worker, as far as ranking needs it."""

    job_id: uuid.UUID
    seq: int
    spec: RequirementSpec
    mode: str


@dataclass(frozen=True)
class Plan:
    """Whom to wake now, and whom later for which job if it still waits then."""

    first: frozenset[uuid.UUID] = frozenset()
    later: dict[uuid.UUID, frozenset[uuid.UUID]] = field(default_factory=dict)


def rank(wanted: Iterable[Wanted], fleet: Sequence[WorkerOffer], line: Sequence[patience.Head]) -> Plan:
    """Choose for each job the worker to wake first: another one for each, while there are others. Pure."""
    protected = [patience.protected_among(offer, line) for offer in fleet]

    @functools.cache  # a burst of equal jobs is judged once
    def answer(place: int, spec: RequirementSpec, mode: str, behind: bool) -> Placement | Refusal:
        seq = _BEHIND if behind else _BEFORE
        return patience.decide(fleet[place], spec, mode=mode, seq=seq, protected=protected[place])

    first: set[uuid.UUID] = set()
    later: dict[uuid.UUID, frozenset[uuid.UUID]] = {}
    for job in sorted(wanted, key=lambda job: job.seq):
        could = []
        for place, (offer, older) in enumerate(zip(fleet, protected, strict=True)):
            placement = answer(place, job.spec, job.mode, older is not None and job.seq > older.seq)
            if isinstance(placement, Placement):
                could.append((offer.worker_id in first, *_fitness(offer, placement), offer.worker_id))
        if could:
            first.add(min(could)[-1])
            later[job.job_id] = frozenset(entry[-1] for entry in could)
    return Plan(frozenset(first), later)


def _fitness(offer: WorkerOffer, placement: Placement) -> tuple[bool, int, str]:
    """Less is better: idle before busy, then the least memory left over (CPU job: the most room), then by name."""
    if placement.shares:
        busy = any(gpu.reserved for gpu in offer.gpus)
        return busy, sum(share.gpu.total_mib - share.mib for share in placement.shares), offer.name
    return offer.free_cpu_slots < offer.cpu_slots, -offer.free_cpu_slots, offer.name


class Waker:
    """Wakes the workers whose streams one process has. Idle, and without a thread, while it has none."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._streams: dict[uuid.UUID, set[Mailbox]] = defaultdict(set)
        self._jobs: set[uuid.UUID] = set()
        self._due: list[tuple[float, Plan]] = []
        self._thread: threading.Thread | None = None
        self._unsubscribe: Callable[[], None] | None = None

    @contextmanager
    def stream(self, worker_id: uuid.UUID, box: Mailbox) -> Iterator[None]:
        """Have `box` get a notice of kind WAKE whenever this worker should ask for work, while the block lasts."""
        with self._changed:
            self._streams[worker_id].add(box)
            if self._unsubscribe is None:
                self._unsubscribe = notices.subscribe(self._hear)
            if self._thread is None:
                self._thread = threading.Thread(target=self._judge_while_needed, name="waker", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._changed:
                self._streams[worker_id].discard(box)
                if not self._streams[worker_id]:
                    del self._streams[worker_id]
                if not self._streams and self._unsubscribe is not None:
                    self._unsubscribe()
                    self._unsubscribe = None
                self._changed.notify_all()

    def _hear(self, notice: Notice) -> None:
        """Called in the listener's thread."""
        if notice.kind != "work":
            return
        if "worker" in notice.ids:  # something of this worker changed, and it may take now what it could not before
            self._wake({uuid.UUID(notice.ids["worker"])})
        elif "job" in notice.ids:
            self._judge({uuid.UUID(notice.ids["job"])})
        elif "line" in notice.ids:  # a job left it for which workers kept their GPUs: who is behind it may go
            self._judge({HEADS})
        else:  # something changed for everybody
            self._wake(None)

    def _judge(self, wanted: set[uuid.UUID]) -> None:
        """Have these jobs judged, in the waker's own thread."""
        with self._changed:
            self._jobs |= wanted
            self._changed.notify_all()

    def _wake(self, worker_ids: Iterable[uuid.UUID] | None) -> None:
        """Wake these workers, as far as they are connected here; None: all."""
        with self._changed:
            ids = list(self._streams) if worker_ids is None else worker_ids
            boxes = [box for worker_id in ids for box in self._streams.get(worker_id, ())]
        for box in boxes:
            box.post(Notice(WAKE))

    def _judge_while_needed(self) -> None:
        rest_until = 0.0
        while True:
            with self._changed:
                while not self._is_due(rest_until):
                    if not self._streams:
                        self._jobs.clear()
                        self._due.clear()
                        self._thread = None
                        return
                    self._changed.wait(self._seconds_to_wait(rest_until))
                now = time.monotonic()
                due = [plan for at, plan in self._due if at <= now]
                self._due = [(at, plan) for at, plan in self._due if at > now]
                jobs: set[uuid.UUID] = set()
                if now >= rest_until:
                    jobs, self._jobs = self._jobs, jobs
            self._work(jobs, due)
            if jobs:
                finished = time.monotonic()
                rest_until = finished + (finished - now) * (1 / SHARE_OF_TIME - 1)

    def _is_due(self, rest_until: float) -> bool:
        now = time.monotonic()
        return bool(self._jobs and now >= rest_until) or any(at <= now for at, _ in self._due)

    def _seconds_to_wait(self, rest_until: float) -> float | None:
        moments = [at for at, _ in self._due] + ([rest_until] if self._jobs else [])
        return max(0.0, min(moments) - time.monotonic()) if moments else None

    def _work(self, jobs: set[uuid.UUID], due: list[Plan]) -> None:
        try:
            for plan in due:
                self._wake(_still_wanted(plan))
            if jobs:
                plan, not_judged = _plan(jobs)
                with self._changed:
                    self._jobs |= not_judged
                self._wake(plan.first)
                if plan.later:
                    with self._changed:
                        self._due.append((time.monotonic() + OTHERS_AFTER_SECONDS, plan))
        except Exception:  # the database is away, or a mistake of ours: then everybody asks for himself
            logger.exception("could not judge whom to wake; waking all", extra={"action": "waking_failed"})
            self._wake(None)
        finally:
            connection.close()


def _plan(job_ids: set[uuid.UUID]) -> tuple[Plan, set[uuid.UUID]]:
    """The plan for the first of these jobs that still wait, and those that are left for the next judging."""
    line = patience.heads() if HEADS in job_ids else None
    asked = job_ids - {HEADS} | {head.job_id for head in line or ()}
    waiting = Job.objects.claimable().filter(pk__in=asked, attempts__lt=MAX_ATTEMPTS).select_related("requirement")
    wanted = [Wanted(job.pk, job.seq, spec_of(job.requirement), job.mode) for job in waiting.order_by("seq")]
    if not wanted:
        return Plan(), set()
    plan = rank(wanted[:JUDGED_AT_ONCE], offers.offers_for(None), patience.heads() if line is None else line)
    return plan, {job.job_id for job in wanted[JUDGED_AT_ONCE:]}


def _still_wanted(plan: Plan) -> set[uuid.UUID]:
    """Those who could take one of the plan's jobs that nobody has taken yet, without those who were woken for them."""
    left = Job.objects.claimable().filter(pk__in=list(plan.later)).values_list("pk", flat=True)
    return {worker_id for job_id in left for worker_id in plan.later[job_id]} - plan.first


WAKER = Waker()
