"""The last step of a GPU job: its app is gone, and its GPUs have their memory back, or it is told why not."""

from __future__ import annotations

import logging
import time

from gpu_worker.executor import Found, Runtime
from gpu_worker.gpu_use import Left, told
from gpu_worker.job import Job
from gpu_worker.journal import Departed
from gpu_worker.process_identity import boot_id

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0  # how often it is looked again while memory may just be on its way back
PATIENCE_SECONDS = 5.0  # as long as a driver may take to clear what a killed process had
SILENCE_SECONDS = 10.0  # a driver that tells nothing for so long tells nothing about this app; the longer counts
SILENCE_BEATS = 3  # heartbeats, as often as GPUs are looked at when nobody is in a hurry


def note_use(job: Job) -> None:
    """Its app is about to end, or has ended: what it uses of GPUs from here on says nothing."""
    if job.facts.gpus:
        job.workshop.releases.ending(job.facts.lease)


def note_departure(job: Job, runtime: Runtime | None) -> None:
    """Before the app is removed: keep what is needed to tell afterwards, also after a restart of the worker."""
    uses = job.workshop.releases.ending(job.facts.lease) if job.facts.gpus else {}
    if job.record.departed is None and runtime is not None and uses:
        job.record.departed = Departed(runtime.reference, boot_id(), uses)


def await_release(job: Job) -> None:
    """Keep the lease in hand until its GPUs have their memory back. Raises Detached.

    Where nothing was measured, or the driver tells nothing any more, nothing is waited for.
    """
    departed, lease = job.record.departed, job.facts.lease
    if departed is None or departed.boot_id != boot_id():  # a restart of the machine gives all of it back
        return
    releases = job.workshop.releases
    releases.gone(Found(job.facts, departed.container, "gone"), departed.uses)
    try:
        _wait(job, lease)
    finally:
        releases.forget(lease)


def _wait(job: Job, lease: str) -> None:
    began = heard = time.monotonic()
    while True:
        if job.wishes.shutting_down:
            job.detach()  # the next process goes on waiting
        late = time.monotonic() - began > PATIENCE_SECONDS
        if not late:
            job.workshop.look_again()
        left = job.workshop.releases.left_of(lease, timeout=LOOK_SECONDS)
        if left is not None:
            heard = time.monotonic()
        elif time.monotonic() - heard < _silence_seconds(job):
            continue
        if not left:
            _clear(job)
            return
        if late:
            _tell(job, left)


def _silence_seconds(job: Job) -> float:
    return max(SILENCE_SECONDS, SILENCE_BEATS * job.workshop.intervals().heartbeat_seconds)


def _tell(job: Job, left: tuple[Left, ...]) -> None:
    """Say it where the machine's owner and the operators look; again when it is another thing."""
    sentence = told(left, f"{job.facts.owner}/{job.facts.repo}")
    if sentence == job.record.unreleased:
        return
    logger.warning(
        "gpu memory not released",
        extra={"action": "gpu_not_released", "lease": job.facts.lease, "job": job.facts.job, "problem": sentence},
    )
    job.record.unreleased = sentence
    job.workshop.journal.save(job.record)


def _clear(job: Job) -> None:
    if job.record.unreleased is not None:
        logger.info("gpu memory released", extra={"action": "gpu_released", "lease": job.facts.lease})
        job.record.unreleased = None
