"""Go on with what a former process of this worker started."""

from __future__ import annotations

import threading

from gpu_worker.errors import JobFailed
from gpu_worker.executor import Runtime
from gpu_worker.job import AlreadyTold, Job
from gpu_worker.protocol import Instruction
from gpu_worker.revival import revived
from gpu_worker.wishes import STOP, Wish

POLL_SECONDS = 0.2


class Confirmation:
    """What the answer to register said of a lease. Thread-safe."""

    def __init__(self) -> None:
        self._there = threading.Event()
        self._instruction: Instruction | None = None

    def give(self, instruction: Instruction | None) -> None:
        """Register was answered; None: it did not mention the lease."""
        self._instruction = instruction
        self._there.set()

    def wait(self, job: Job) -> Instruction | None:
        """Wait for that answer, and then as long as the server does not know the lease. Raises JobInterrupted."""
        while not self._there.wait(POLL_SECONDS):
            job.wishes.raise_if_made()
        while job.unknown.now:
            job.wishes.raise_if_made()
            job.unknown.note()
            job.wishes.made.wait(POLL_SECONDS)
        return self._instruction


def adopt(job: Job, confirmation: Confirmation) -> Runtime:
    """The app as it was found; its life is touched only after the server has answered register.

    Raises JobFailed, JobInterrupted, AlreadyTold.
    """
    record = job.record
    runtime = job.patiently(lambda: job.workshop.executor.find(record))
    if runtime is not None:
        job.took(runtime)
        if record.phase == "running":
            job.open_route(runtime)  # visitors need not wait for the control plane
    _begin_to_report(job, confirmation.wait(job))
    if record.phase == "exited":
        job.ended_by_itself = True
        job.finish_output()
        raise AlreadyTold
    if record.failure is not None:
        raise JobFailed(*record.failure)
    if runtime is None:
        raise JobFailed("container_lost", "The app was gone when the worker came back.")
    if record.phase == "stopping":
        job.wishes.make(Wish(STOP, "the stop goes on after a restart of the worker"))
    job.wishes.raise_if_made()
    state = job.state(runtime)
    job.say(f"adopted after a restart of the worker · {runtime.reference} · {state.status}")
    if state.status == "created":
        job.patiently(runtime.start)  # the former process died between create and start
    elif job.facts.mode == "service":
        revived(job, runtime, state)
    return runtime


def _begin_to_report(job: Job, instruction: Instruction | None) -> None:
    if job.report is not None:
        if instruction is not None:
            job.report.resume(next_seq=instruction.next_seq, log_offsets=instruction.log_offsets)
        job.report.start()
