"""Start an app again that ended through no fault of its own: same lease, same container, so same image."""

from __future__ import annotations

import time

from gpu_worker.executor import Runtime, RuntimeState
from gpu_worker.job import Job
from gpu_worker.process_identity import boot_id

ENGINE_SHUTDOWN_SECONDS = 4.0  # it ends its containers first and then itself, and answers in between
ENGINE_POLL_SECONDS = 0.5
# As apps end that are asked to, or made to: by themselves they seldom do.
ASKED_TO_END = frozenset({0, 128 + 15, 128 + 9})

HOST_REBOOTED, ENGINE_RESTARTED = "host_rebooted", "engine_restarted"
SENTENCES = {
    HOST_REBOOTED: "The machine was restarted, which ended the app.",
    ENGINE_RESTARTED: "The container engine was restarted, which ended the app.",
}


def revived(job: Job, runtime: Runtime, state: RuntimeState) -> bool:
    """Whether an app that is found *exited* was started again. Raises JobFailed, JobInterrupted.

    A batch job is not: half of its work may be done, and only its owner knows whether it may be done twice.
    """
    reason = _ended_with(job, state) if state.status == "exited" else None
    if reason is None:
        return False
    job.say(SENTENCES[reason])
    if job.facts.mode == "batch":
        return False
    job.close_route()
    job.enter("starting")
    job.tell("starting", reason=reason, image_id=runtime.image_id)
    job.forget_address()
    job.finish_output()
    job.patiently(runtime.start)
    job.follow_output(runtime)
    return True


def _ended_with(job: Job, state: RuntimeState) -> str | None:
    """What took the app along; None: it ended by itself."""
    if job.record.boot_id != boot_id():
        return HOST_REBOOTED
    before = job.record.engine
    # an app that this process saw running may have ended because its engine is just about to
    perhaps = job.record.phase == "running" and not job.record.found_ended
    perhaps = perhaps and state.exit_code in ASKED_TO_END and not state.oom_killed
    deadline = time.monotonic() + (ENGINE_SHUTDOWN_SECONDS if perhaps else 0.0)
    while before is not None:
        now = job.patiently(job.workshop.executor.incarnation)
        if now is not None and now != before:
            return ENGINE_RESTARTED
        if time.monotonic() >= deadline:
            return None
        job.wishes.made.wait(ENGINE_POLL_SECONDS)
        job.wishes.raise_if_made()
    return None
