"""Deliver what a batch job left in its results directory, before its end is told.

The container is the only copy until the server has acknowledged every file, so it is not removed before: not in an
outage of the server, and not when this process is killed (the next one finds the ended container, asks what arrived,
and goes on). Only a lost lease gives up; a stop leaves ten minutes more.

While the engine hands out a container's files it answers nothing else about that container. So nothing is waited for
with such a stream open, except the sending of one large file.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Generator
from contextlib import closing

from gpu_worker.artifact_client import ArtifactClient
from gpu_worker.errors import (
    CallFailed,
    CredentialInvalid,
    EngineError,
    EngineSilent,
    LeaseStale,
    Refused,
    Unreachable,
    WireError,
)
from gpu_worker.executor import Runtime
from gpu_worker.job import Job
from gpu_worker.result_files import Quota, ResultFile, Results, Skipped, only_file, survey
from gpu_worker.wishes import LOST, STOP, Wish

logger = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 15.0
POLL_SECONDS = 0.2
STOPPED_SECONDS = 600.0  # for the results of a job that was stopped: long enough for gigabytes, and no longer
TOLD_PATHS = 20
MIB = 1024 * 1024


def deliver_results(job: Job) -> None:
    """Bring the results of an ended batch job to the server; for any other job, nothing.

    Returns when all of them are there, or nothing more can be done for them. Raises Detached at a shutdown.
    """
    url, runtime = job.facts.artifacts_url, job.runtime
    if job.facts.mode == "batch" and url is not None and runtime is not None:
        _Delivery(job, runtime, job.workshop.client.artifacts(url, lambda: job.runtime_token)).run()


class _GivenUp(Exception):
    """Nobody wants the rest any more."""


class _Delivery:
    def __init__(self, job: Job, runtime: Runtime, client: ArtifactClient) -> None:
        self._job, self._runtime, self._client = job, runtime, client
        self._results: Results | None = None
        self._stop_until: float | None = None
        self._trouble = ""

    def run(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            delivered_before = self._delivered
            try:
                self._deliver()
                return
            except _GivenUp:
                self._tell_given_up()
                return
            except LeaseStale:
                self._job.wishes.make(Wish(LOST, "the lease is not ours any more"))
                return
            except (CredentialInvalid, Unreachable, EngineSilent) as problem:
                self._note(problem)
            except (CallFailed, WireError) as problem:
                self._job.say(f"results: the control plane does not take any: {problem}")
                return
            except EngineError as problem:
                self._job.say(f"results: they could not be read: {problem}")
                return
            if self._delivered > delivered_before:
                pause = FIRST_PAUSE_SECONDS
            try:
                self._wait(pause * random.uniform(0.7, 1.3))
            except _GivenUp:
                self._tell_given_up()
                return
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    _delivered = 0

    def _deliver(self) -> None:
        """One try: whatever is not there yet, and at the end what is left out."""
        inventory = self._client.inventory()
        if self._results is None:
            self._results = self._look(inventory.quota)
            self._tell_found(self._results)
        results = self._results
        for file in results.files:
            if inventory.digests.get(file.path) != file.sha256:
                self._check()
                self._put(file)
                self._delivered += 1
        if results.skipped:
            self._client.leave_out(results.skipped)
        if results.files:
            self._job.say(f"results: delivered {_count(results)}")

    def _look(self, quota: Quota) -> Results:
        pieces = self._runtime.results()
        if pieces is None:
            return Results()
        with closing(pieces):
            return survey(pieces, quota, check=self._check)

    def _put(self, file: ResultFile) -> None:
        try:
            with closing(self._content(file)) as content:
                self._client.put(file, content)
        except (CredentialInvalid, LeaseStale):
            raise
        except EngineSilent:
            raise
        except EngineError as problem:
            self._drop(file, "unreadable", str(problem))
        except Refused as refusal:
            # The server knows better than what it said before: others were in its way, or the file has changed.
            reason = {"too_large": "file_too_large", "quota_exceeded": "job_quota"}.get(refusal.code, "unreadable")
            self._drop(file, reason, refusal.detail)

    def _drop(self, file: ResultFile, reason: str, why: str) -> None:
        assert self._results is not None
        self._results.drop(file, reason)
        self._job.say(f"results: {file.path} is left out: {why}")

    def _content(self, file: ResultFile) -> Generator[bytes, None, None]:
        if file.content is not None:
            yield file.content
            return
        pieces, left = self._runtime.results(file.path), file.size
        if pieces is None:
            raise EngineError("it is gone")
        with closing(pieces):
            for block in only_file(pieces):
                self._check()
                left -= len(block)
                if left < 0:
                    break
                yield block
        if left:
            raise EngineError("it has changed while it was read")

    # -- when it ends otherwise --------------------------------------------------------------------------------

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._check()
            self._job.unknown.note()
            time.sleep(POLL_SECONDS)

    def _check(self) -> None:
        """Raise _GivenUp or Detached when the rest is not to be delivered, or not by this process."""
        wishes = self._job.wishes
        if wishes.is_for(LOST):
            raise _GivenUp
        if wishes.shutting_down:
            self._job.detach()
        if wishes.is_for(STOP):
            if self._stop_until is None:
                self._stop_until = time.monotonic() + STOPPED_SECONDS
            if time.monotonic() > self._stop_until:
                raise _GivenUp

    def _tell_given_up(self) -> None:
        """Of a stopped job: say what is missing, if anybody listens."""
        if self._job.wishes.is_for(LOST):
            return
        self._job.say("results: the job was stopped before all of them were delivered")
        if self._results is not None:
            try:
                here = self._client.inventory().digests
                missing = [file for file in self._results.files if here.get(file.path) != file.sha256]
                self._client.leave_out([Skipped(file.path, file.size, "stopped") for file in missing])
            except (CallFailed, WireError) as problem:
                self._note(problem)

    # -- what is told ------------------------------------------------------------------------------------------

    def _tell_found(self, results: Results) -> None:
        say = self._job.say
        if results.files:
            say(f"results: delivering {_count(results)}")
            self._job.tell("delivering", files=len(results.files), bytes=results.size)
        elif not results.skipped:
            say("results: none")
        for one in results.skipped[:TOLD_PATHS]:
            size = "" if one.size is None else f" ({_mib(one.size)})"
            say(f"results: {one.path}{size} is left out: {one.reason.replace('_', ' ')}")
        if results.skipped_count > TOLD_PATHS:
            say(f"results: {results.skipped_count} files are left out altogether")
        if results.others:
            say(f"results: {results.others} links or special files are no results")
        if not results.whole:
            say("results: there is more than could be looked at; the rest is left out")

    def _note(self, problem: Exception) -> None:
        """Say once per trouble that the results wait."""
        if str(problem) == self._trouble:
            return
        self._trouble = str(problem)
        self._job.say(f"results: not delivered yet, they wait in the container: {problem}")
        logger.warning(
            "results not delivered",
            extra={"action": "results_wait", "lease": self._job.facts.lease, "problem": str(problem)},
        )


def _count(results: Results) -> str:
    number = len(results.files)
    return f"{number} file{'' if number == 1 else 's'}, {_mib(results.size)}"


def _mib(size: int) -> str:
    return f"{size} bytes" if size < MIB else f"{size / MIB:.1f} MiB"
