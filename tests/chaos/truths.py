"""What must be true of the database after every step, read in one query and judged without the code under test.

Only `jobs.states.TABLE` is shared: it is the specification of the legal moves. Everything else is said here anew.
"""

from __future__ import annotations

import copy
import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from django.db import connection

from jobs import states
from jobs.states import ACTIVE, COMING, FINAL, SERVING, Event, JobState

MARGIN_MIB = 512
SUBMITTED = "submitted"
PLACED = "placed"  # an operator gave a queued job other needs
# A running app fell ill or is well again; a batch job has ended and brings its results.
TOLD = ("app_health", "delivering")
TOWARDS_STOPPED = (JobState.STOPPING, JobState.COMPLETED, JobState.CANCELLED)
HANDED_BACK = (Event.DECLINED, Event.LOST, Event.CUT_OFF, Event.STOPPED)

LOOK = """
SELECT json_build_object(
  'jobs', (SELECT coalesce(json_agg(json_build_object(
      'id', id, 'seq', seq, 'space', space_id, 'replica', replica, 'state', state, 'mode', mode,
      'stop', stop_requested_at IS NOT NULL, 'blocked_by', blocked_by_id, 'attempts', attempts,
      'worker', worker_id, 'ran', first_ran_at IS NOT NULL, 'finished', finished_at IS NOT NULL,
      'requirement', requirement_id) ORDER BY seq), '[]') FROM jobs_job),
  'leases', (SELECT coalesce(json_agg(json_build_object(
      'id', id, 'job', job_id, 'worker', worker_id, 'attempt', attempt, 'released', released_at IS NOT NULL,
      'cleared', cleared_at IS NOT NULL) ORDER BY job_id, attempt), '[]') FROM jobs_lease),
  'reservations', (SELECT coalesce(json_agg(json_build_object(
      'lease', r.lease_id, 'gpu', g.uuid, 'total', g.total_vram_mib, 'worker', g.worker_id, 'mib', r.mib,
      'exclusive', r.exclusive, 'cleared', r.cleared_at IS NOT NULL)), '[]')
      FROM jobs_reservation r JOIN workers_gpu g ON g.id = r.gpu_id),
  'workers', (SELECT coalesce(json_agg(json_build_object(
      'id', id, 'name', name, 'local', local, 'scheduling', scheduling, 'revoked', revoked_at IS NOT NULL,
      'session', session, 'unknown', foreign_leases)), '[]') FROM workers_worker),
  'events', (SELECT coalesce(json_agg(json_build_object(
      'id', id, 'job', job_id, 'event', event, 'from', from_state, 'to', to_state, 'ignored', ignored)
      ORDER BY id), '[]') FROM jobs_jobevent WHERE id > %s)
)::text
"""


@dataclass(frozen=True)
class Picture:
    """All rows that matter, at one moment. Ids are strings."""

    jobs: dict[str, dict[str, Any]]
    leases: list[dict[str, Any]]
    reservations: list[dict[str, Any]]
    workers: dict[str, dict[str, Any]]
    events: list[dict[str, Any]]

    @property
    def unreleased(self) -> dict[str, list[dict[str, Any]]]:
        """The leases that may run each job, by job."""
        found: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for lease in self.leases:
            if not lease["released"]:
                found[lease["job"]].append(lease)
        return found


def look(*, events_after: int = 0) -> Picture:
    with connection.cursor() as cursor:
        cursor.execute(LOOK, [events_after])
        row = cursor.fetchone()
    assert row is not None
    content = json.loads(row[0])
    return Picture(
        jobs={job["id"]: job for job in content["jobs"]},
        leases=content["leases"],
        reservations=content["reservations"],
        workers={worker["id"]: worker for worker in content["workers"]},
        events=content["events"],
    )


@dataclass
class History:
    """The jobs' states as their events tell them. Forgotten and read anew when the database was put back."""

    last_id: int = 0
    states: dict[str, JobState] = field(default_factory=dict)
    ran: set[str] = field(default_factory=set)
    stopped: set[str] = field(default_factory=set)
    wished: set[str] = field(default_factory=set)
    attempts: dict[str, int] = field(default_factory=dict)
    last: dict[str, str] = field(default_factory=dict)

    def copy(self) -> History:
        """What was known at this moment."""
        return copy.deepcopy(self)

    def follow(self, events: list[dict[str, Any]]) -> None:
        for event in events:
            self.last_id = event["id"]
            if event["ignored"] or not event["to"]:
                continue
            job, name, to = event["job"], event["event"], JobState(event["to"])
            if name == PLACED:
                assert event["from"] == to == self.states.get(job) == JobState.QUEUED, f"{event} of what does not wait"
                self.last[job] = name
                continue
            if name in TOLD:
                assert event["from"] == to == self.states.get(job), f"{event} moved a job"
                continue
            if name == SUBMITTED:
                assert job not in self.states and to is JobState.QUEUED, f"a second start of job {job}"
            else:
                before = self.states.get(job)
                assert event["from"] == before, f"{event} follows {before}"
                legal = states.move(JobState(event["from"]), Event(name), ever_ran=job in self.ran)
                assert to is legal, f"{event}: the table says {legal}"
            if name in (Event.STOP, Event.STOP_UNREACHABLE):
                self.wished.add(job)
            if job in self.wished:
                assert to in TOWARDS_STOPPED, f"{event}, and it was to stop"
            self.states[job], self.last[job] = to, name
            if to is JobState.RUNNING:
                self.ran.add(job)
            self.attempts[job] = self._attempts(job, Event(name) if name != SUBMITTED else None, to)

    def _attempts(self, job: str, event: Event | None, to: JobState) -> int:
        """How many claims count: not those that were handed back, lost on the way or taken away."""
        before = self.attempts.get(job, 0)
        if event is Event.CLAIM:
            return before + 1
        returned = to is JobState.QUEUED and event in HANDED_BACK
        return max(0, before - 1) if returned else before


def check(picture: Picture, history: History) -> None:
    """Raise AssertionError with a sentence where one of the truths does not hold."""
    history.follow(picture.events)
    _jobs(picture, history)
    _leases(picture)
    _reservations(picture)


def _jobs(picture: Picture, history: History) -> None:
    unreleased = picture.unreleased
    coming: set[tuple[int, int]] = set()
    serving: set[tuple[int, int]] = set()
    oldest: dict[tuple[int, int], str] = {}
    for job in picture.jobs.values():  # by seq
        state, name = JobState(job["state"]), f"job {job['id']} ({job['state']})"
        told = history.states.get(job["id"])
        assert state is told, f"{name}: its events say {told}"
        assert job["ran"] == (job["id"] in history.ran), f"{name}: whether it ever ran"
        if job["id"] in history.stopped or job["stop"]:
            history.stopped.add(job["id"])
            assert job["stop"], f"{name}: a wish to stop was forgotten"
            assert state in FINAL or state is JobState.STOPPING, f"{name}: it goes on after a stop"
        assert job["finished"] == (state in FINAL), f"{name}: finished_at"
        assert 0 <= job["attempts"] <= 3, f"{name}: {job['attempts']} attempts"
        counted = history.attempts[job["id"]]
        assert job["attempts"] == counted, f"{name}: {job['attempts']} attempts, and {counted} count"
        place = (job["space"], job["replica"])
        if state in COMING:
            assert place not in coming, f"{name}: two are coming"
            coming.add(place)
        if state in SERVING:
            assert place not in serving, f"{name}: two serve"
            serving.add(place)
        if state in ACTIVE:
            first = oldest.setdefault(place, job["id"])
            assert first == job["id"] or job["blocked_by"], f"{name}: it does not wait for job {first}"
        leases = unreleased.get(job["id"], [])
        assert len(leases) <= 1, f"{name}: {len(leases)} unreleased leases"
        if state in FINAL:
            assert not leases, f"{name}: it is over, and a lease may still run it"
        elif state not in (JobState.QUEUED, JobState.UNAVAILABLE):
            assert leases, f"{name}: nobody may run it"
            assert job["worker"] == leases[0]["worker"], f"{name}: shown on {job['worker']}, leased to another"
        elif state is JobState.QUEUED and history.last[job["id"]] == Event.EXPIRED:
            assert leases, f"{name}: its lease expired, and nobody may resume it"
        blocker = picture.jobs.get(job["blocked_by"] or "")
        if state in ACTIVE and blocker is not None:
            assert JobState(blocker["state"]) in ACTIVE, f"{name}: it waits for a job that is over"
            assert state is JobState.QUEUED, f"{name}: it did not wait for its predecessor"
            assert blocker["seq"] < job["seq"], f"{name}: it waits for a later job"


def _leases(picture: Picture) -> None:
    for lease in picture.leases:
        if lease["cleared"]:
            assert lease["released"], f"lease {lease['id']} is cleared and still a right to run"


def _reservations(picture: Picture) -> None:
    cleared = {lease["id"]: lease["cleared"] for lease in picture.leases}
    by_gpu: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in picture.reservations:
        assert row["cleared"] == cleared[row["lease"]], f"a reservation of lease {row['lease']} and it disagree"
        if not row["cleared"]:
            by_gpu[row["gpu"]].append(row)
    for gpu, rows in by_gpu.items():
        if any(row["exclusive"] for row in rows):
            assert len(rows) == 1, f"{gpu} is given as a whole, and to {len(rows)} leases"
        else:
            total = max(row["total"] for row in rows)
            reserved = sum(row["mib"] for row in rows)
            assert reserved <= total - MARGIN_MIB, f"{gpu}: {reserved} of {total} MiB are reserved"
