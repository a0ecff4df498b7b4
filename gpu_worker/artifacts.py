"""Deliver what a batch job left in its results directory, before its end is told.

The container is the only copy until the server has acknowledged every file, so it is not removed before: not in an
outage of the server, and not when this process is killed (the next one finds the ended container, asks what arrived,
and goes on). Only a lost lease gives up; a stop leaves ten minutes more, and an owner who wants the machine now some
seconds: then the job goes back to the line, to compute again.

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
from gpu_worker.result_files import Quota, ResultFile, Results, Skipped, deceives, only_file
from gpu_worker.result_survey import Survey
from gpu_worker.tree_names import shown
from gpu_worker.wishes import HAND_BACK, LOST, STOP, Wish

logger = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 15.0
POLL_SECONDS = 0.2
STOPPED_SECONDS = 600.0  # for the results of a job that was stopped: long enough for gigabytes, and no longer
HANDED_BACK_SECONDS = 10.0  # for what is nearly there when the owner of the machine wants it now
PROGRESS_SECONDS = 5.0
TOLD_PATHS = 20
MIB = 1024 * 1024


def deliver_results(job: Job) -> bool:
    """Bring the results of an ended batch job to the server; for any other job, nothing.

    Returns when all of them are there, or nothing more can be done for them: False where the machine's owner did not
    leave the time. Raises Detached at a shutdown.
    """
    url, runtime = job.facts.artifacts_url, job.runtime
    if job.facts.mode != "batch" or url is None or runtime is None:
        return True
    delivery = _Delivery(job, runtime, job.workshop.client.artifacts(url, lambda: job.runtime_token))
    delivery.run()
    return not (delivery.given_up and job.wishes.is_for(HAND_BACK))


class _GivenUp(Exception):
    """Nobody wants the rest any more."""


class _Delivery:
    def __init__(self, job: Job, runtime: Runtime, client: ArtifactClient) -> None:
        self._job, self._runtime, self._client = job, runtime, client
        self._survey: Survey | None = None
        self._results: Results | None = None
        self._done = 0
        self._told_at = time.monotonic()
        self._until: float | None = None
        self._trouble = self._progress = ""
        self.given_up = False

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
        for self._done, file in enumerate(tuple(results.files)):
            if inventory.digests.get(file.path) != file.sha256:
                self._check()
                self._put(file)
                self._delivered += 1
        if results.skipped:
            self._client.leave_out(results.skipped)
        if results.files:
            self._job.say(f"results: delivered {_count(results)}")

    def _look(self, quota: Quota) -> Results:
        if self._survey is None:
            self._job.say("results: looking at what the app left")
            self._survey = Survey(quota, check=self._check)
        return self._survey.look(self._runtime)

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
        self._job.say(f"results: {shown(file.path)} is left out: {why}")

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
        self._tell_progress()
        wishes = self._job.wishes
        if wishes.is_for(LOST):
            raise _GivenUp
        if wishes.shutting_down:
            self._job.detach()
        if wishes.is_for(STOP, HAND_BACK):
            if self._until is None:
                seconds = STOPPED_SECONDS if wishes.is_for(STOP) else HANDED_BACK_SECONDS
                self._until = time.monotonic() + seconds
            if time.monotonic() > self._until:
                raise _GivenUp

    def _tell_given_up(self) -> None:
        """Of a stopped job: say what is missing, if anybody listens."""
        self.given_up = True
        if self._job.wishes.is_for(LOST):
            return
        if self._job.wishes.is_for(HAND_BACK):
            self._job.say("results: the owner of the machine wants it now, before all of them were delivered")
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

    def _tell_progress(self) -> None:
        """Every few seconds how far it has come; nothing while it waits."""
        if self._survey is None or time.monotonic() < self._told_at + PROGRESS_SECONDS:
            return
        if self._results is not None:
            progress = f"results: {self._done} of {len(self._results.files)} files delivered"
        else:
            to_deliver = _mib(self._survey.results.size)
            progress = f"results: looked at {self._survey.looked_at} files so far, {to_deliver} to deliver"
        if progress != self._progress:
            self._job.say(progress)
        self._told_at, self._progress = time.monotonic(), progress

    def _tell_found(self, results: Results) -> None:
        say = self._job.say
        if results.files:
            say(f"results: delivering {_count(results)}")
            self._job.tell("delivering", files=len(results.files), bytes=results.size)
        elif not results.skipped:
            say("results: none")
        for one in results.skipped[:TOLD_PATHS]:
            size = "" if one.size is None else f" ({_mib(one.size)})"
            say(f"results: {shown(one.path)}{size} is left out: {one.reason.replace('_', ' ')}")
        if results.skipped_count > TOLD_PATHS:
            altogether = "altogether" if results.whole else "and more"
            say(f"results: {results.skipped_count} files {altogether} are left out")
        if hidden := sum(deceives(file.path) for file in results.files):
            say(
                f"results: {hidden} {'name has' if hidden == 1 else 'names have'} characters that turn text around or "
                "show nothing; they are shown as codes, and saved as _"
            )
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
