"""Watch a started app: until it answers, and then until it ends or its end is wished."""

from __future__ import annotations

import time
from collections.abc import Sequence

from gpu_worker.cut_off import raise_if_cut_off
from gpu_worker.ending import exited, halt
from gpu_worker.errors import EngineError, JobFailed
from gpu_worker.executor import Runtime, RuntimeState
from gpu_worker.gpu_sight import LOST_SENTENCE, PROBE
from gpu_worker.gpu_watch import GpuWatch
from gpu_worker.job import Job
from gpu_worker.limit_news import LimitNews
from gpu_worker.process_identity import boot_id
from gpu_worker.readiness import Probe, answers_tcp, unanswered
from gpu_worker.revival import revived
from gpu_worker.wishes import DEFAULT_GRACE_SECONDS

STARTUP_TIMEOUT_SECONDS = 1800.0
READY_POLL_SECONDS = 0.02  # at first: a small app answers in a moment, and somebody waits for it
LONGEST_READY_POLL_SECONDS = 1.0
LONGEST_WATCH_SECONDS = 2.0  # a container removed by hand is noticed within this, or one heartbeat
UNHEALTHY_AFTER = 3  # refused connections in a row


def await_ready(job: Job, runtime: Runtime) -> None:
    """Until the app answers; a batch job is ready as it runs. Raises JobFailed, JobInterrupted."""
    limit = job.facts.startup_timeout_seconds or STARTUP_TIMEOUT_SECONDS
    deadline = time.monotonic() + limit
    pause, probe = READY_POLL_SECONDS, Probe(job.facts.base_path)
    while True:
        job.wishes.raise_if_made()
        job.raise_if_condemned()
        state = job.state(runtime)
        if state.status == "gone":
            raise JobFailed("container_lost", "The app's container was removed while it was starting.")
        if state.status == "exited":
            if job.facts.mode == "batch":
                break
            if not revived(job, runtime, state):
                raise _ended_early(job, state)
            deadline = time.monotonic() + limit
        if job.facts.mode == "batch" or job.answers(runtime, probe.answers):
            break
        if time.monotonic() > deadline:
            raise JobFailed(
                "startup_timeout", unanswered(job.facts.port, limit, _listening(runtime), instead=probe.instead)
            )
        job.wishes.made.wait(pause)
        pause = min(pause * 1.3, LONGEST_READY_POLL_SECONDS)
    if job.facts.mode == "batch":
        job.record.running_since = time.monotonic()
    job.enter("running")
    job.open_route(runtime)
    job.tell("running", image_id=runtime.image_id, gpus=list(job.facts.gpus), prefix=probe.prefix)
    job.workshop.executor.note_good(job.record)


def serve(job: Job, runtime: Runtime) -> None:
    """Until the running app ends. Raises JobFailed, JobInterrupted."""
    refusals, limits = 0, LimitNews(job, runtime)
    watch = GpuWatch(
        lambda: runtime.execute(PROBE), every_seconds=job.workshop.gpu_watch_seconds if job.facts.gpus else 0
    )
    while True:
        job.wishes.raise_if_made()
        job.raise_if_condemned()
        raise_if_cut_off(job)
        _raise_if_out_of_time(job)
        job.unknown.note()
        state = job.state(runtime)
        if state.status == "gone":
            raise JobFailed("container_lost", "The app's container was removed by somebody else.")
        if state.status == "exited" and not revived(job, runtime, state):
            exited(job, state)
            return
        if job.record.phase == "starting":
            await_ready(job, runtime)
        job.open_route(runtime)
        watch.look()
        limits.look()
        if job.facts.mode == "service":
            answers = state.status == "running" and job.answers(runtime, answers_tcp)
            refusals = 0 if answers else refusals + 1
            if not answers:
                job.forget_address()
            certain = answers or refusals >= UNHEALTHY_AFTER or state.status == "paused"
            if certain:
                _judge(job, _ailment(job, state, answers=answers, gpu_lost=watch.lost))
        job.wishes.made.wait(min(LONGEST_WATCH_SECONDS, job.workshop.intervals().heartbeat_seconds))


def _ailment(job: Job, state: RuntimeState, *, answers: bool, gpu_lost: bool) -> tuple[str, str] | None:
    """What ails a running app, as a code and in words; None: nothing."""
    if state.status == "paused":
        return "paused", "paused"
    if not answers:
        return "no_answer", f"nothing answers on port {job.facts.port}"
    return ("gpu_lost", LOST_SENTENCE) if gpu_lost else None


def _ended_early(job: Job, state: RuntimeState) -> JobFailed:
    job.finish_output()
    return JobFailed("oom_killed" if state.oom_killed else "exited_before_ready", job.ended(state))


def _judge(job: Job, ailment: tuple[str, str] | None) -> None:
    """Tell when an app falls ill, when something else ails it, and when it is well again.

    Of an adopted one, once how it is: that may be news.
    """
    reason, detail = ailment if ailment is not None else (None, None)
    healthy = ailment is None
    if (healthy, reason) == (job.healthy, job.ailment):
        return
    if ailment is not None:
        job.tell("health", healthy=False, reason=reason, detail=detail)
    elif job.healthy is not None or job.claim is None:
        job.tell("health", healthy=True, detail=None)
    job.healthy, job.ailment = healthy, reason


def _raise_if_out_of_time(job: Job) -> None:
    """A batch job may compute for so long: counted from its start, over restarts of this process."""
    limit, since = job.facts.limits.run_timeout_seconds, job.record.running_since
    if limit is None or job.facts.mode != "batch":
        return
    if since is None or job.record.boot_id != boot_id():  # found without a journal, or ended by a reboot
        job.record.running_since = time.monotonic()
    elif time.monotonic() - since > limit:
        failure = JobFailed("time_limit", f"It computed for longer than {_spoken(limit)}, the limit of this job.")
        job.note_failure(failure.reason, failure.detail)
        halt(job, DEFAULT_GRACE_SECONDS)
        raise failure


def _spoken(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    minutes, rest = divmod(rest, 60)
    parts = [f"{number} {unit}" for number, unit in ((hours, "h"), (minutes, "min"), (rest, "s")) if number]
    return " ".join(parts) or "0 s"


def _listening(runtime: Runtime) -> Sequence[str] | None:
    try:
        return runtime.listening()
    except EngineError:
        return None
