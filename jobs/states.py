"""The legal moves of a job. Pure: no database, no clock.

`TABLE` is the only list of moves; `jobs/lifecycle.py` is the only caller that acts on it. An event that is not in the
table for the present state is illegal there: it is recorded as ignored and changes nothing.
"""

from __future__ import annotations

from enum import StrEnum

from jobs.errors import IllegalTransition


class JobState(StrEnum):
    """Where a job stands. The values are wire strings."""

    QUEUED = "queued"  # waits for a worker; also after a lease expired, until another claim or its renewal
    LEASED = "leased"  # a worker has it and reads the repository
    BUILDING = "building"  # the worker builds the image
    STARTING = "starting"  # the container exists, the port does not answer yet
    RUNNING = "running"  # the port answers; only this state is shown as running
    STOPPING = "stopping"  # somebody pressed stop; whatever arrives now moves towards stopped
    UNAVAILABLE = "unavailable"  # it ran, and its worker is silent: nobody knows
    COMPLETED = "completed"  # final: a batch job that succeeded, or a job that ran and was stopped
    FAILED = "failed"  # final
    CANCELLED = "cancelled"  # final: stopped before it ever ran


class Event(StrEnum):
    """What can happen to a job. Reports of workers, acts of people and findings of the keeper alike."""

    CLAIM = "claim"  # a worker takes it
    RESUMED = "resumed"  # an expired, unreleased lease is renewed: the same attempt goes on
    BUILDING = "building"
    STARTING = "starting"
    RUNNING = "running"
    REBOOTED = "rebooted"  # the host restarted: same lease, same image, a new container
    EXPIRED = "expired"  # the lease ran out; it is not released yet
    GAVE_UP = "gave_up"  # the last attempt expired, and its last chance to resume with it
    DECLINED = "declined"  # the worker hands it back (shutdown, GPU gone, its owner's pause): no attempt is counted
    LOST = "lost"  # a live worker no longer lists the lease
    FINISHED = "finished"  # a batch job exited with 0
    BROKE = "broke"  # failed, or exited when it should not have
    STOP = "stop"  # a person or a newer job wants it stopped
    STOP_UNREACHABLE = "stop_unreachable"  # the same, and the worker is silent: final at once
    STOPPED = "stopped"  # the worker says that it stopped
    SILENT = "silent"  # nothing heard from the worker for stale_seconds
    CUT_OFF = "cut_off"  # its worker was revoked, or remote workers switched off: it may not run this any more
    WITHHELD = "withheld"  # remote workers are switched off: what runs goes on unseen, under the same lease


S, E = JobState, Event

COMING = frozenset({S.QUEUED, S.LEASED, S.BUILDING, S.STARTING})
SERVING = frozenset({S.RUNNING, S.UNAVAILABLE})
FINAL = frozenset({S.COMPLETED, S.FAILED, S.CANCELLED})
ACTIVE = frozenset(S) - FINAL

_ON_THE_WAY = {
    E.EXPIRED: S.QUEUED,
    E.DECLINED: S.QUEUED,
    E.LOST: S.QUEUED,
    E.CUT_OFF: S.QUEUED,
    E.STOPPED: S.QUEUED,  # stopped without a wish: the worker let go of it, nobody asked for that
    E.BROKE: S.FAILED,
    E.FINISHED: S.COMPLETED,
    E.STOP: S.STOPPING,
    E.STOP_UNREACHABLE: S.COMPLETED,
}

TABLE: dict[tuple[JobState, Event], JobState] = {
    # queued. Reports here come under a lease that expired and that nobody took: the same attempt goes on.
    (S.QUEUED, E.CLAIM): S.LEASED,
    (S.QUEUED, E.RESUMED): S.LEASED,
    (S.QUEUED, E.BUILDING): S.BUILDING,
    (S.QUEUED, E.STARTING): S.STARTING,
    (S.QUEUED, E.RUNNING): S.RUNNING,
    (S.QUEUED, E.DECLINED): S.QUEUED,
    (S.QUEUED, E.LOST): S.QUEUED,
    (S.QUEUED, E.CUT_OFF): S.QUEUED,
    (S.QUEUED, E.STOPPED): S.QUEUED,
    (S.QUEUED, E.BROKE): S.FAILED,
    (S.QUEUED, E.FINISHED): S.COMPLETED,
    (S.QUEUED, E.GAVE_UP): S.FAILED,
    (S.QUEUED, E.STOP): S.COMPLETED,  # for one that was handed back while it ran; see the end of the table
    (S.QUEUED, E.STOP_UNREACHABLE): S.COMPLETED,
    # leased, building, starting
    **{(S.LEASED, event): to for event, to in _ON_THE_WAY.items()},
    (S.LEASED, E.BUILDING): S.BUILDING,
    (S.LEASED, E.STARTING): S.STARTING,
    (S.LEASED, E.RUNNING): S.RUNNING,
    **{(S.BUILDING, event): to for event, to in _ON_THE_WAY.items()},
    (S.BUILDING, E.STARTING): S.STARTING,
    (S.BUILDING, E.RUNNING): S.RUNNING,
    **{(S.STARTING, event): to for event, to in _ON_THE_WAY.items()},
    (S.STARTING, E.RUNNING): S.RUNNING,
    (S.STARTING, E.REBOOTED): S.STARTING,
    # running
    (S.RUNNING, E.SILENT): S.UNAVAILABLE,
    (S.RUNNING, E.CUT_OFF): S.UNAVAILABLE,
    (S.RUNNING, E.WITHHELD): S.UNAVAILABLE,
    (S.RUNNING, E.REBOOTED): S.STARTING,
    (S.RUNNING, E.DECLINED): S.QUEUED,  # the machine's owner wants it now: stopped there, and free to run elsewhere
    (S.RUNNING, E.FINISHED): S.COMPLETED,
    (S.RUNNING, E.BROKE): S.FAILED,
    (S.RUNNING, E.LOST): S.FAILED,
    (S.RUNNING, E.STOPPED): S.FAILED,
    (S.RUNNING, E.STOP): S.STOPPING,
    (S.RUNNING, E.STOP_UNREACHABLE): S.COMPLETED,
    # unavailable
    (S.UNAVAILABLE, E.RUNNING): S.RUNNING,
    (S.UNAVAILABLE, E.REBOOTED): S.STARTING,
    (S.UNAVAILABLE, E.DECLINED): S.QUEUED,
    (S.UNAVAILABLE, E.FINISHED): S.COMPLETED,
    (S.UNAVAILABLE, E.BROKE): S.FAILED,
    (S.UNAVAILABLE, E.LOST): S.FAILED,
    (S.UNAVAILABLE, E.STOPPED): S.FAILED,
    (S.UNAVAILABLE, E.CUT_OFF): S.UNAVAILABLE,  # its worker was silent already; now its lease ends, too
    # The state stays, the reason changes: switched off while silent, or still silent when switched on again.
    (S.UNAVAILABLE, E.WITHHELD): S.UNAVAILABLE,
    (S.UNAVAILABLE, E.SILENT): S.UNAVAILABLE,
    (S.UNAVAILABLE, E.STOP): S.STOPPING,
    (S.UNAVAILABLE, E.STOP_UNREACHABLE): S.COMPLETED,
    # stopping. Here, and wherever a stop ends a job at once, COMPLETED stands for "completed if it ever ran, else
    # cancelled": move()
    (S.STOPPING, E.STOPPED): S.COMPLETED,
    (S.STOPPING, E.BROKE): S.COMPLETED,
    (S.STOPPING, E.FINISHED): S.COMPLETED,
    (S.STOPPING, E.LOST): S.COMPLETED,
    (S.STOPPING, E.DECLINED): S.COMPLETED,
    (S.STOPPING, E.SILENT): S.COMPLETED,
    (S.STOPPING, E.CUT_OFF): S.COMPLETED,
    (S.STOPPING, E.STOP_UNREACHABLE): S.COMPLETED,
}


def move(state: JobState, event: Event, *, ever_ran: bool) -> JobState:
    """Return the state after `event`; raise IllegalTransition where the table has no such move.

    A job that was stopped is completed if it ever ran and cancelled otherwise.
    """
    try:
        to = TABLE[state, event]
    except KeyError:
        raise IllegalTransition(f"A job that is {state} cannot take the event {event}.") from None
    stopped = state is S.STOPPING or event in (E.STOP, E.STOP_UNREACHABLE)
    return S.CANCELLED if stopped and to is S.COMPLETED and not ever_ran else to
