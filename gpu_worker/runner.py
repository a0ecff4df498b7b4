"""One job, from its claim (or its adoption after a restart) until nothing of it is left on this machine.

One thread per job walks the steps; every step can be cut by a wish from outside: stop, lost lease, shutdown. The first
wish wins. **What happens when a lease cannot be renewed** is decided in three places: `beginning` (a build goes on, no
container is created), `serving` (a running app goes on, unless the claim set a limit for the silence), and here (a
lease that the server does not know).
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable

from gpu_worker.adoption import adopt
from gpu_worker.artifacts import deliver_results
from gpu_worker.beginning import begin
from gpu_worker.ending import end_by_wish, halt, leave_nothing
from gpu_worker.errors import JobDeclined, JobFailed, JobInterrupted, LeaseStale
from gpu_worker.executor import Runtime
from gpu_worker.job import AlreadyTold, Detached, Job
from gpu_worker.journal import JobFacts, JobRecord
from gpu_worker.open_files import used_up
from gpu_worker.protocol import Claim, Hold, Instruction
from gpu_worker.serving import await_ready, serve
from gpu_worker.wishes import DEFAULT_GRACE_SECONDS, LOST, STOP, Wish
from gpu_worker.workshop import Workshop

logger = logging.getLogger(__name__)

CLEANING_RETRY_SECONDS = 5.0
LOOK_AGAIN_SECONDS = 1.0
FAILED_GRACE_SECONDS = 2.0


class JobRunner:
    def __init__(
        self, record: JobRecord, workshop: Workshop, *, claim: Claim | None, on_end: Callable[[JobRunner], None]
    ) -> None:
        """A runner for a fresh *claim*, or (None) for what a former process of this worker left."""
        self._job = Job(record, workshop, claim)
        self._on_end = on_end
        self._thread = threading.Thread(target=self._run, name=f"job-{record.facts.lease[:8]}", daemon=True)

    # -- from other threads; none of these waits for anything ------------------------------------------------------

    @property
    def facts(self) -> JobFacts:
        return self._job.facts

    @property
    def lease(self) -> str:
        return self._job.facts.lease

    @property
    def has_app(self) -> bool:
        """Whether its app has been started, and its end has not."""
        return self._job.runtime is not None and self._job.record.phase in ("starting", "running")

    def condemn(self, failure: JobFailed) -> None:
        """Let the app end within moments, and its job fail by this."""
        self._job.condemned = failure

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout: float) -> None:
        self._thread.join(timeout)

    def wish(self, wish: Wish) -> None:
        """Ask for the end."""
        self._job.wishes.make(wish)

    def obey(self, instruction: Instruction, *, asked_at: float) -> None:
        """What the server wants with this lease; *asked_at* is when (monotonic) we asked."""
        job = self._job
        grace = DEFAULT_GRACE_SECONDS if instruction.grace_seconds is None else instruction.grace_seconds
        if instruction.want == "stop":
            self.wish(Wish(STOP, instruction.reason, grace))
        elif instruction.want == "remove":
            self.wish(Wish(LOST, instruction.reason, grace))
        elif instruction.want == "keep":
            job.renewal.note(asked_at)
        if instruction.runtime_token is not None:
            job.runtime_token = instruction.runtime_token
            job.record.runtime_token_sha256 = hashlib.sha256(instruction.runtime_token.encode()).hexdigest()
        if instruction.next_seq is not None and job.report is not None:
            job.report.compare(next_seq=instruction.next_seq, asked_at=asked_at)
        if instruction.want == "hold":
            self._not_known(time.monotonic())
        else:
            job.unknown.known()

    def _not_known(self, now: float) -> None:
        """The server has no row of this lease: a restored database, or another installation's container.

        What runs is kept for a day but not served, so that an operator can look at it. What does not run yet is
        dropped: nobody could give it its place in the line.
        """
        job = self._job
        if not job.unknown.now:
            job.close_route()
        job.unknown.told(now)
        if job.runtime is None and job.record.phase in ("leased", "building"):
            self.wish(Wish(LOST, "the control plane does not know this lease"))
        elif job.unknown.seconds >= job.workshop.unknown_lease_seconds:
            logger.warning(
                "unknown lease removed",
                extra={"action": "unknown_removed", "lease": self.facts.lease, "job": self.facts.job},
            )
            self.wish(Wish(LOST, "the control plane has not known this lease for too long"))

    def confirm(self, instruction: Instruction | None) -> None:
        """After register: what the server says of this lease (None: nothing). An adopted job goes on from here."""
        self._job.confirmation.give(instruction)

    def hold(self) -> Hold:
        record, runtime = self._job.record, self._job.runtime
        return Hold(
            lease=self.facts.lease,
            state="exited" if record.found_ended else record.phase,
            image_id=record.image_id,
            container=runtime.reference if runtime else None,
            healthy=self._job.healthy,
            kind=self.facts.kind,
            gpus=self.facts.gpus,
            reason=record.unreleased,
        )

    @property
    def occupies_slot(self) -> bool:
        return self._job.record.phase != "exited"

    # -- the thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        job = self._job
        try:
            self._live()
        except Detached:
            return
        except Exception:
            # the outermost net of a job: a defect here must neither take the worker along nor leave a container
            logger.exception("runner failed", extra={"action": "runner_failed", "lease": self.facts.lease})
            job.tell("failed", reason="worker_error", detail="The worker met an unexpected problem; its log says more.")
        while True:
            try:
                leave_nothing(job)
                break
            except Detached:
                return
            except Exception:
                logger.exception("cleaning failed", extra={"action": "cleaning_failed", "lease": self.facts.lease})
                time.sleep(CLEANING_RETRY_SECONDS)
        self._on_end(self)

    def _live(self) -> None:
        """Walk the steps, and turn whatever ends the walk into the one event that ends the job."""
        job = self._job
        try:
            job.open_report()
            runtime = begin(job, job.claim) if job.claim is not None else adopt(job)
            self._watch(runtime)
        except JobFailed as failure:
            detail = job.masked(failure.detail)
            job.note_failure(failure.reason, detail)
            halt(job, FAILED_GRACE_SECONDS)
            job.await_register(interruptible=False)
            deliver_results(job)
            job.tell("failed", reason=failure.reason, detail=detail)
        except JobDeclined as declined:
            needed = {"cuda": declined.cuda} if declined.cuda else {}
            job.tell("declined", reason=declined.reason, detail=declined.detail, **needed)
        except AlreadyTold:
            pass
        except JobInterrupted:
            end_by_wish(job)
        except LeaseStale:
            self.wish(Wish(LOST, "the lease is not ours any more"))
            end_by_wish(job)

    def _watch(self, runtime: Runtime) -> None:
        """Until the app ends, by a look at it: one that was not possible for want of files says nothing."""
        job = self._job
        while True:
            try:
                if job.record.phase != "running":
                    await_ready(job, runtime)
                serve(job, runtime)
                return
            except OSError as problem:
                if not used_up(problem):
                    raise
                logger.warning(
                    "app cannot be looked at; it goes on",
                    extra={"action": "cannot_look", "lease": self.facts.lease, "problem": str(problem)},
                )
            job.wishes.made.wait(LOOK_AGAIN_SECONDS)
