"""Defects to plant, to see that the schedules have teeth: `python -m tests.chaos --plant NAME`.

Each is one line of the code gone wrong in a way that somebody could write. Nothing here runs unless it is asked for.
Found after so many schedules (batches of 12 from seed 2): a stop waits for a worker that is gone 4, successors are
forgotten 7, the right and the memory end together 8, a reservation is forgotten 13, running overrules a stop 19, a
silent engine counts as an empty one 19, a report under an old lease counts 20, draining takes jobs 29; in batches of 16
from seed 0: cutting off keeps the lease 27, expiry ends the lease 30. In batches of 16 from seed 2, after rules for
them had come: a start that does not wait, handing back that counts and reservations that are forgotten in the first
batch, our own outage in the second, unknown leases that are removed in the third.

Not among them: spent jobs that nobody gives up. At rest every machine of this world comes back, and resumes the third
attempt; what becomes of a machine that never does is tested in `tests/jobs/test_lease_expiry.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jobs import scheduling, states
from jobs.lifecycle import claiming, holds, lapses, reports, stopping, submission, transition
from jobs.models import Lease
from jobs.states import FINAL, Event, JobState
from workers.models import Worker


def cutting_off_keeps_the_lease() -> None:
    def ends(event: Event, after: JobState) -> bool:
        return after in FINAL or (after is JobState.QUEUED and event not in transition.KEEPS_LEASE)

    _put(transition, "_ends_lease", ends)


def expiry_ends_the_lease() -> None:
    _put(transition, "KEEPS_LEASE", frozenset({Event.CLAIM, Event.SILENT}))


def a_silent_engine_counts_as_an_empty_one() -> None:
    _around(holds, "sync_holds", lambda real, *args, holds, **more: real(*args, holds=holds or [], **more))
    from jobs import lifecycle

    _put(lifecycle, "sync_holds", holds.sync_holds)


def handing_back_counts_as_an_attempt() -> None:
    _put(transition, "UNCOUNTED", frozenset({Event.LOST, Event.CUT_OFF, Event.STOPPED}))


def a_reservation_is_forgotten() -> None:
    """The second GPU of a job is not reserved."""
    real = claiming._TAKE
    claiming._TAKE = real.replace("FROM taken, unnest(", "FROM taken, ROWS FROM (unnest(").replace(
        ") AS share", ")) AS share LIMIT 1"
    )
    assert real != claiming._TAKE


def the_right_and_the_memory_end_together() -> None:
    """The end of the right to run frees the GPU at once, while the container still runs."""

    def release(real: Any, lease: Lease, **more: Any) -> None:
        real(lease, **more)
        transition.clear(lease, now=more["now"])

    _around(transition, "release", release)


def a_report_under_an_old_lease_counts() -> None:
    def own(job: Any, worker_id: Any, lease_id: Any) -> Lease:
        return Lease.objects.get(pk=lease_id)

    _put(reports, "own_lease", own)


def running_overrules_a_stop() -> None:
    states.TABLE[JobState.STOPPING, Event.RUNNING] = JobState.RUNNING


def successors_are_forgotten() -> None:
    _put(transition, "_unblock_successors", lambda ended: None)


def our_own_outage_is_the_workers_silence() -> None:
    _put(Worker, "silent_since", lambda self, *, up_since: self.last_seen_at)


def unknown_leases_are_removed() -> None:
    def strays(worker_id: Any, lease_ids: Any) -> list[holds.Instruction]:
        return [holds.Instruction(pk, "remove") for pk in lease_ids]

    _put(holds, "_strays", strays)


def draining_takes_jobs() -> None:
    real = scheduling._not_now

    def not_now(offer: Any, **more: Any) -> Any:
        refusal = real(offer, **more)
        return None if refusal is not None and refusal.code == "worker_draining" else refusal

    _put(scheduling, "_not_now", not_now)


def a_stop_waits_for_a_worker_that_is_gone() -> None:
    _put(stopping, "_nobody_will_answer", lambda lease, **more: "")


def clearing_forgets_the_reservations() -> None:
    def clear(lease: Lease, *, now: Any) -> None:
        Lease.objects.filter(pk=lease.pk, cleared_at=None).update(cleared_at=now)

    for module in (transition, holds, lapses):
        _put(module, "clear", clear)


def a_start_does_not_wait_for_the_stop() -> None:
    """A successor is queued beside a predecessor that still stops."""
    real = submission.submit

    def submit(*args: Any, **more: Any) -> Any:
        job = real(*args, **more)
        type(job).objects.filter(pk=job.pk).update(blocked_by=None)
        return job

    from tests.chaos import world

    _put(world, "submit", submit)


def _around(module: Any, name: str, function: Callable[..., Any]) -> None:
    real = getattr(module, name)
    _put(module, name, lambda *args, **more: function(real, *args, **more))


def _put(module: Any, name: str, value: Any) -> None:
    """Replace a name where it is used. Only for what these plants are for."""
    assert hasattr(module, name), f"{module} has no {name} any more: the plant must follow the code"
    setattr(module, name, value)


DEFECTS: dict[str, Callable[[], None]] = {
    function.__name__: function
    for function in (
        cutting_off_keeps_the_lease,
        expiry_ends_the_lease,
        a_silent_engine_counts_as_an_empty_one,
        handing_back_counts_as_an_attempt,
        a_reservation_is_forgotten,
        the_right_and_the_memory_end_together,
        a_report_under_an_old_lease_counts,
        running_overrules_a_stop,
        successors_are_forgotten,
        our_own_outage_is_the_workers_silence,
        unknown_leases_are_removed,
        draining_takes_jobs,
        a_stop_waits_for_a_worker_that_is_gone,
        clearing_forgets_the_reservations,
        a_start_does_not_wait_for_the_stop,
    )
}
