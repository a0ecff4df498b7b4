"""The end of a job: by itself, by a wish, or by a failure; and afterwards nothing of it is left on this machine."""

from __future__ import annotations

import threading
import time

from gpu_worker.artifacts import deliver_results
from gpu_worker.departure import await_release, note_departure, note_use
from gpu_worker.executor import RuntimeState
from gpu_worker.job import SHUTDOWN_DELIVERY_SECONDS, Job
from gpu_worker.reporting import JobReport
from gpu_worker.wishes import HAND_BACK, LOST, SHUTDOWN, STOP, Wishes


def exited(job: Job, state: RuntimeState) -> None:
    """The app ended by itself: its last words, then its exit code."""
    job.ended_by_itself = True
    note_use(job)
    job.close_route()
    job.finish_output()
    sentence = job.ended(state)
    job.say(sentence)
    whole = deliver_results(job)  # in the phase "running": the next process would go on here
    job.enter("exited")
    wish = job.wishes.current
    if not whole and wish is not None:
        job.tell("declined", reason="paused", detail=wish.reason)  # without its results it computed for nothing
        return
    if job.report is not None:
        job.report.exited(code=state.exit_code, oom_killed=state.oom_killed, detail=sentence)


def end_by_wish(job: Job) -> None:
    """Do what the wish wants. Raises Detached where the app is to live on without this process."""
    wish = job.wishes.current
    assert wish is not None
    if wish.kind == SHUTDOWN:
        if job.runtime is not None or job.record.phase not in ("leased", "building"):
            job.detach()
        job.tell("declined", reason="shutdown", detail="The worker was shut down during the build.")
        return
    if job.runtime is not None:
        job.record.ending = (wish.kind, wish.reason)
        job.record.kill_at = time.monotonic() + wish.grace_seconds
        job.enter("stopping")
        job.say(f"stopping: {wish.reason or 'no reason given'}")
    halt(job, wish.grace_seconds)
    job.await_register(interruptible=False)
    if wish.kind == STOP:
        deliver_results(job)
        job.tell("stopped")
    elif wish.kind == HAND_BACK:
        job.tell("declined", reason="paused", detail=wish.reason)


def halt(job: Job, grace_seconds: float) -> None:
    """Nothing of the app runs or is reachable afterwards, and its last words are in the log."""
    job.close_route()
    runtime = job.runtime
    if runtime is not None:
        note_use(job)
        job.patiently(lambda: runtime.stop(grace_seconds), interruptible=False)
        job.finish_output()


def leave_nothing(job: Job) -> None:
    """Remove the app, deliver what is still to tell, forget the job; the order in which the server can follow.

    Of an app that ended by itself the end and the log are delivered first: until then its container is the only
    place that keeps them over a restart of the worker. Raises Detached.
    """
    job.close_route()
    note_departure(job, job.runtime)
    job.enter("exited")
    if job.ended_by_itself and job.report is not None:
        _deliver_the_rest(job, job.report)
    runtime = job.runtime or job.patiently(lambda: job.workshop.executor.find(job.record), interruptible=False)
    if runtime is not None:
        job.patiently(runtime.remove, interruptible=False)
    if job.report is not None:
        _deliver_the_rest(job, job.report)
        job.report.close()
    await_release(job)
    job.workshop.journal.drop(job.facts.lease)


def _deliver_the_rest(job: Job, report: JobReport) -> None:
    """Wait until the server has the end of the job, unless its lease is lost; detach when we shut down before."""
    job.await_register(interruptible=False)
    while not job.wishes.is_for(LOST):
        if report.wait_delivered(cancel=_NobodyWaits(job.wishes)):
            return
        if job.wishes.shutting_down:
            if not report.wait_delivered(cancel=threading.Event(), timeout=SHUTDOWN_DELIVERY_SECONDS):
                job.detach()  # the journal keeps it for the next start
            return


class _NobodyWaits:
    """Set when waiting for the server has no more sense: the lease is lost, or the worker shuts down."""

    def __init__(self, wishes: Wishes) -> None:
        self._wishes = wishes

    def is_set(self) -> bool:
        return self._wishes.is_for(LOST) or self._wishes.shutting_down
