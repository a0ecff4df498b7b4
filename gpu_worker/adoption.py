"""Go on with what a former process of this worker started."""

from __future__ import annotations

import time

from gpu_worker.cut_off import raise_if_cut_off
from gpu_worker.errors import JobFailed, JobInterrupted
from gpu_worker.executor import Runtime
from gpu_worker.job import AlreadyTold, Job
from gpu_worker.journal import JobRecord
from gpu_worker.process_identity import boot_id
from gpu_worker.revival import revived
from gpu_worker.wishes import DEFAULT_GRACE_SECONDS, HAND_BACK, STOP, Wish

POLL_SECONDS = 0.2


def adopt(job: Job) -> Runtime:
    """The app as it was found; its life goes on only after the server has answered register, a stop under way at once.

    Raises JobFailed, JobInterrupted, AlreadyTold, Detached. The first two may come before that answer (the owner of
    the machine need not wait for it); whoever tells the end then waits for it.
    """
    record = job.record
    runtime = job.patiently(lambda: job.workshop.executor.find(record))
    if runtime is not None:
        job.took(runtime)
        if record.phase == "running":
            job.open_route(runtime)  # visitors need not wait for the control plane
    if record.phase == "exited":
        job.await_register(interruptible=False)  # no wish changes an end that was told
        job.ended_by_itself = True
        job.finish_output()
        raise AlreadyTold
    if record.failure is not None:
        raise JobFailed(*record.failure)
    if record.phase == "stopping":
        job.wishes.make(_wish_under_way(record))
        raise JobInterrupted
    job.await_register(meanwhile=lambda: raise_if_cut_off(job))
    _while_unknown(job)
    if runtime is None:
        raise JobFailed("container_lost", "The app was gone when the worker came back.")
    job.wishes.raise_if_made()
    state = job.state(runtime)
    job.say(f"adopted after a restart of the worker · {runtime.reference} · {state.status}")
    if state.status == "created":
        job.patiently(runtime.start)  # the former process died between create and start
    elif job.facts.mode == "service":
        revived(job, runtime, state)
    return runtime


def _while_unknown(job: Job) -> None:
    """Wait as long as the server does not know the lease. Raises JobInterrupted."""
    while job.unknown.now:
        job.wishes.raise_if_made()
        raise_if_cut_off(job)
        job.unknown.note()
        job.wishes.made.wait(POLL_SECONDS)


def _wish_under_way(record: JobRecord) -> Wish:
    """Why the former process was stopping the app."""
    kind, reason = record.ending or (STOP, None)
    grace = DEFAULT_GRACE_SECONDS
    if record.kill_at is not None and record.boot_id == boot_id():
        grace = max(0.0, record.kill_at - time.monotonic())  # the app was asked to end long ago
    if kind == HAND_BACK:
        return Wish(HAND_BACK, reason, grace)
    return Wish(STOP, "the stop goes on after a restart of the worker", grace)
