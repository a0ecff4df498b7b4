"""One job, from its claim (or its adoption after a restart) until nothing of it is left on this machine.

One thread per job walks the steps; every step can be cut by a wish from outside: stop, lost lease, shutdown. The first
wish wins. Decided here, once: **what happens when a lease cannot be renewed.** A build goes on (within its limit). A
container is created only after a renewal that was asked for after the build ended and was granted. A running app goes
on, unless the claim set a limit for the silence.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from gpu_worker.errors import EngineError, EngineSilent, JobDeclined, JobFailed, JobInterrupted, LeaseStale
from gpu_worker.executor import Prepared, Runtime, RuntimeState
from gpu_worker.gpus import assigned_gpus
from gpu_worker.journal import JobFacts, JobRecord
from gpu_worker.masking import Masker
from gpu_worker.output import OutputPump
from gpu_worker.process_identity import ProcessIdentity, boot_id
from gpu_worker.protocol import Claim, Hold, Instruction, Receipt
from gpu_worker.readiness import answers_http, answers_tcp, unanswered
from gpu_worker.renewal import Renewal
from gpu_worker.reporting import JobReport
from gpu_worker.wishes import DEFAULT_GRACE_SECONDS, HAND_BACK, LOST, SHUTDOWN, STOP, Wish, Wishes
from gpu_worker.workshop import Workshop

logger = logging.getLogger(__name__)
_T = TypeVar("_T")

STARTUP_TIMEOUT_SECONDS = 1800.0
READY_POLL_SECONDS = 0.1
CONFIRMATION_POLL_SECONDS = 0.2
LONGEST_READY_POLL_SECONDS = 1.0
LONGEST_WATCH_SECONDS = 2.0  # a container removed by hand is noticed within this, or one heartbeat
UNHEALTHY_AFTER = 3  # refused connections in a row
ENGINE_RETRY_SECONDS = 1.0
CLEANING_RETRY_SECONDS = 5.0
UNKNOWN_NOTE_SECONDS = 60.0  # how much of an unknown lease's age a crash of the worker may cost
FAILED_GRACE_SECONDS = 2.0
SHUTDOWN_DELIVERY_SECONDS = 5.0


class JobRunner:
    def __init__(
        self, record: JobRecord, workshop: Workshop, *, claim: Claim | None, on_end: Callable[[JobRunner], None]
    ) -> None:
        """A runner for a fresh *claim*, or (None) for what a former process of this worker left."""
        self._record, self._workshop, self._claim, self._on_end = record, workshop, claim, on_end
        self._wishes = Wishes()
        self._renewal = Renewal(record.facts, workshop.client)
        self._confirmed = threading.Event()
        self._instruction: Instruction | None = None
        self._unknown_at: float | None = None
        self._unknown_noted = record.unknown_seconds
        self._known_address: tuple[str, int] | None = None
        self._runtime: Runtime | None = None
        self._output: OutputPump | None = None
        self._healthy: bool | None = None
        self._ended_by_itself = False
        self._report: JobReport | None = None
        self._mask = Masker(())
        self._thread = threading.Thread(target=self._run, name=f"job-{record.facts.lease[:8]}", daemon=True)

    # -- from other threads; none of these waits for anything ------------------------------------------------------

    @property
    def facts(self) -> JobFacts:
        return self._record.facts

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout: float) -> None:
        self._thread.join(timeout)

    def wish(self, wish: Wish) -> None:
        """Ask for the end."""
        self._wishes.make(wish)

    def obey(self, instruction: Instruction, *, asked_at: float) -> None:
        """What the server wants with this lease; *asked_at* is when (monotonic) we asked."""
        grace = DEFAULT_GRACE_SECONDS if instruction.grace_seconds is None else instruction.grace_seconds
        if instruction.want == "stop":
            self.wish(Wish(STOP, instruction.reason, grace))
        elif instruction.want == "remove":
            self.wish(Wish(LOST, instruction.reason, grace))
        elif instruction.want == "keep":
            self._renewal.note(asked_at)
        if instruction.runtime_token is not None:
            self._record.runtime_token_sha256 = hashlib.sha256(instruction.runtime_token.encode()).hexdigest()
        if instruction.next_seq is not None and self._report is not None:
            self._report.compare(next_seq=instruction.next_seq, asked_at=asked_at)
        if instruction.want == "hold":
            self._unknown(time.monotonic())
        else:
            self._unknown_at, self._record.unknown_seconds = None, 0.0

    def _unknown(self, now: float) -> None:
        """The server has no row of this lease: a restored database, or another installation's container.

        What runs is kept for a day but not served, so that an operator can look at it. What does not run yet is
        dropped: nobody could give it its place in the line.
        """
        if self._unknown_at is None:
            self._workshop.routes.close(self.facts.lease)
        else:
            self._record.unknown_seconds += now - self._unknown_at
        self._unknown_at = now
        if self._runtime is None and self._record.phase in ("leased", "building"):
            self.wish(Wish(LOST, "the control plane does not know this lease"))
        elif self._record.unknown_seconds >= self._workshop.unknown_lease_seconds:
            logger.warning(
                "unknown lease removed",
                extra={"action": "unknown_removed", "lease": self.facts.lease, "job": self.facts.job},
            )
            self.wish(Wish(LOST, "the control plane has not known this lease for too long"))

    def confirm(self, instruction: Instruction | None) -> None:
        """After register: what the server says of this lease (None: nothing). An adopted job goes on from here."""
        self._instruction = instruction
        self._confirmed.set()

    def hold(self) -> Hold:
        return Hold(
            lease=self.facts.lease,
            state="exited" if self._record.found_ended else self._record.phase,
            image_id=self._record.image_id,
            container=self._runtime.reference if self._runtime else None,
            healthy=self._healthy,
        )

    @property
    def occupies_slot(self) -> bool:
        return self._record.phase != "exited"

    # -- the thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._live()
        except _Detached:
            return
        except Exception:
            # the outermost net of a job: a defect here must neither take the worker along nor leave a container
            logger.exception("runner failed", extra={"action": "runner_failed", "lease": self.facts.lease})
            self._tell(
                "failed", reason="worker_error", detail="The worker met an unexpected problem; its log says more."
            )
        while True:
            try:
                self._leave_nothing()
                break
            except _Detached:
                return
            except Exception:
                logger.exception("cleaning failed", extra={"action": "cleaning_failed", "lease": self.facts.lease})
                time.sleep(CLEANING_RETRY_SECONDS)
        self._on_end(self)

    def _live(self) -> None:
        try:
            self._open_report()
            runtime = self._begin() if self._claim is not None else self._adopt()
            if self._record.phase != "running":
                self._await_ready(runtime)
            self._serve(runtime)
        except JobFailed as failure:
            self._halt(FAILED_GRACE_SECONDS)
            self._tell("failed", reason=failure.reason, detail=self._masked(failure.detail))
        except JobDeclined as declined:
            self._tell("declined", reason=declined.reason, detail=declined.detail)
        except _AlreadyTold:
            pass
        except JobInterrupted:
            self._end_by_wish()
        except LeaseStale:
            self.wish(Wish(LOST, "the lease is not ours any more"))
            self._end_by_wish()

    # -- the steps -----------------------------------------------------------------------------------------------

    def _begin(self) -> Runtime:
        claim = self._claim
        assert claim is not None
        gpus = ", ".join(claim.gpus) or "none"
        self._system(
            f"revision {claim.revision} · worker {self._workshop.worker_name} · lease {claim.lease} · gpus {gpus}"
        )
        self._enter("building")
        self._tell("building")
        prepared = self._with_source(claim)
        self._record.image_id = prepared.image_id
        self._await_renewal()
        self._enter("starting")
        self._tell("starting", image_id=prepared.image_id)
        runtime = self._launch(claim, prepared)
        self._took(runtime)
        return runtime

    def _await_renewal(self) -> None:
        self._renewal.wait(self._wishes, intervals=self._workshop.intervals, on_final=self._workshop.on_final)

    def _launch(self, claim: Claim, prepared: Prepared) -> Runtime:
        while True:
            assigned = assigned_gpus(self._workshop.gpus(), claim.gpus)
            if assigned is None:
                raise JobDeclined("gpu_gone", "An assigned GPU is not there, or not healthy, any more.")
            self._wishes.raise_if_made()
            try:
                return self._workshop.executor.launch(
                    self._record, prepared, variables=claim.environment, secrets=claim.secrets, assigned=assigned
                )
            except EngineSilent as problem:
                self._note_engine(problem)
            except EngineError as problem:
                raise JobFailed("start_failed", f"The container engine refused: {problem}") from problem
            self._wishes.made.wait(ENGINE_RETRY_SECONDS)
            self._await_renewal()  # the engine may have been silent for longer than the lease lasts

    def _with_source(self, claim: Claim) -> Prepared:
        work = self._workshop.work_dir / claim.lease
        shutil.rmtree(work, ignore_errors=True)
        output = self._stream_writer("build")
        try:
            self._workshop.sources.fetch(
                claim, work / "source", output=output, cancel=self._wishes.made, started=self._note_child
            )
            return self._patiently(
                lambda: self._workshop.executor.prepare(
                    claim, work / "source", output=output, cancel=self._wishes.made, started=self._note_child
                )
            )
        finally:
            self._note_child(None)
            self._end_stream("build")
            shutil.rmtree(work, ignore_errors=True)

    def _adopt(self) -> Runtime:
        """Go on with what the former process started. Its app is left alone until the server has answered register."""
        record = self._record
        runtime = self._patiently(lambda: self._workshop.executor.find(record))
        if runtime is not None:
            self._took(runtime)
            if record.phase == "running":
                self._open_route(runtime)  # visitors need not wait for the control plane
        self._await_confirmation()
        if record.phase == "exited":
            self._ended_by_itself = True
            self._finish_output()
            raise _AlreadyTold
        if runtime is None:
            raise JobFailed("container_lost", "The app was gone when the worker came back.")
        if record.phase == "stopping":
            self.wish(Wish(STOP, "the stop goes on after a restart of the worker"))
        self._wishes.raise_if_made()
        state = self._state(runtime)
        self._system(f"adopted after a restart of the worker · {runtime.reference} · {state.status}")
        if state.status == "exited" and record.boot_id != boot_id() and self.facts.mode == "service":
            self._start_again(runtime, "host_rebooted")
        elif state.status == "created":
            self._patiently(runtime.start)  # the former process died between create and start
        return runtime

    def _await_confirmation(self) -> None:
        """Wait for the answer to register, and then as long as the server does not know this lease."""
        while not self._confirmed.wait(CONFIRMATION_POLL_SECONDS):
            self._wishes.raise_if_made()
        while self._unknown_at is not None:
            self._wishes.raise_if_made()
            self._note_unknown()
            self._wishes.made.wait(CONFIRMATION_POLL_SECONDS)
        if self._report is not None:
            if self._instruction is not None:
                self._report.resume(next_seq=self._instruction.next_seq, log_offsets=self._instruction.log_offsets)
            self._report.start()

    def _start_again(self, runtime: Runtime, reason: str) -> None:
        """The machine was restarted: same lease, same container, so same image."""
        self._workshop.routes.close(self.facts.lease)
        self._enter("starting")
        self._tell("starting", reason=reason, image_id=runtime.image_id)
        self._known_address = None
        self._patiently(runtime.start)

    def _await_ready(self, runtime: Runtime) -> None:
        """Until the app answers; a batch job is ready as it runs."""
        limit = self.facts.startup_timeout_seconds or STARTUP_TIMEOUT_SECONDS
        deadline = time.monotonic() + limit
        pause = READY_POLL_SECONDS
        while True:
            self._wishes.raise_if_made()
            state = self._state(runtime)
            if state.status == "gone":
                raise JobFailed("container_lost", "The app's container was removed while it was starting.")
            if state.status == "exited":
                if self.facts.mode == "batch":
                    break
                raise JobFailed("exited_before_ready", _ended(state) + " before it answered.")
            if self.facts.mode == "batch" or self._answers(runtime, answers_http):
                break
            if time.monotonic() > deadline:
                raise JobFailed("startup_timeout", unanswered(self.facts.port, limit, _listening(runtime)))
            self._wishes.made.wait(pause)
            pause = min(pause * 1.3, LONGEST_READY_POLL_SECONDS)
        self._enter("running")
        self._open_route(runtime)
        self._tell("running", image_id=runtime.image_id, gpus=list(self.facts.gpus))

    def _serve(self, runtime: Runtime) -> None:
        """Watch the running app until it ends or its end is wished."""
        refusals = 0
        while True:
            self._wishes.raise_if_made()
            self._raise_if_cut_off()
            self._note_unknown()
            state = self._state(runtime)
            if state.status == "gone":
                raise JobFailed("container_lost", "The app's container was removed by somebody else.")
            if state.status == "exited":
                self._exited(state)
                return
            self._open_route(runtime)
            if self.facts.mode == "service":
                answers = state.status == "running" and self._answers(runtime, answers_tcp)
                refusals = 0 if answers else refusals + 1
                self._known_address = self._known_address if answers else None  # an engine's restart may move it
                self._judge(
                    healthy=answers,
                    certain=answers or refusals >= UNHEALTHY_AFTER or state.status == "paused",
                    detail="paused" if state.status == "paused" else f"nothing answers on port {self.facts.port}",
                )
            self._wishes.made.wait(min(LONGEST_WATCH_SECONDS, self._workshop.intervals().heartbeat_seconds))

    def _exited(self, state: RuntimeState) -> None:
        self._ended_by_itself = True
        self._workshop.routes.close(self.facts.lease)
        self._enter("exited")
        self._finish_output()
        self._system(_ended(state))
        if self._report is not None:
            self._report.exited(code=state.exit_code, oom_killed=state.oom_killed)

    def _judge(self, *, healthy: bool, certain: bool, detail: str) -> None:
        if not certain or healthy == self._healthy:
            return
        if self._healthy is not None or not healthy:
            self._tell("health", healthy=healthy, detail=None if healthy else detail)
        self._healthy = healthy

    # -- the end -----------------------------------------------------------------------------------------------

    def _end_by_wish(self) -> None:
        wish = self._wishes.current
        assert wish is not None
        if wish.kind == SHUTDOWN:
            if self._runtime is not None or self._record.phase not in ("leased", "building"):
                self._detach()
            self._tell("declined", reason="shutdown", detail="The worker was shut down during the build.")
            return
        if self._runtime is not None:
            self._enter("stopping")
            self._system(f"stopping: {wish.reason or 'no reason given'}")
        self._halt(wish.grace_seconds)
        if wish.kind == STOP:
            self._tell("stopped")
        elif wish.kind == HAND_BACK:
            self._tell("declined", reason="paused", detail=wish.reason)

    def _halt(self, grace_seconds: float) -> None:
        """Nothing of the app runs or is reachable afterwards, and its last words are in the log."""
        self._workshop.routes.close(self.facts.lease)
        runtime = self._runtime
        if runtime is not None:
            self._patiently(lambda: runtime.stop(grace_seconds), interruptible=False)
            self._finish_output()

    def _leave_nothing(self) -> None:
        """Remove the app, deliver what is still to tell, forget the job; the order in which the server can follow.

        Of an app that ended by itself the end and the log are delivered first: until then its container is the only
        place that keeps them over a restart of the worker.
        """
        self._workshop.routes.close(self.facts.lease)
        self._enter("exited")
        if self._ended_by_itself and self._report is not None:
            self._deliver_the_rest(self._report)
        runtime = self._runtime or self._patiently(
            lambda: self._workshop.executor.find(self._record), interruptible=False
        )
        if runtime is not None:
            self._patiently(runtime.remove, interruptible=False)
        if self._report is not None:
            self._deliver_the_rest(self._report)
            self._report.close()
        self._workshop.journal.drop(self.facts.lease)

    def _deliver_the_rest(self, report: JobReport) -> None:
        """Wait until the server has the end of the job, unless its lease is lost; detach when we shut down before."""
        while not self._wishes.is_for(LOST):
            if report.wait_delivered(cancel=_NobodyWaits(self._wishes)):
                return
            if self._wishes.is_for(SHUTDOWN):
                if not report.wait_delivered(cancel=threading.Event(), timeout=SHUTDOWN_DELIVERY_SECONDS):
                    self._detach()  # the journal keeps it for the next start
                return

    def _detach(self) -> None:
        """This process ends, the app lives on; the next one adopts it."""
        if self._report is not None:
            self._report.wait_delivered(cancel=threading.Event(), timeout=SHUTDOWN_DELIVERY_SECONDS / 2)
            self._report.close()
        raise _Detached

    def _raise_if_cut_off(self) -> None:
        limit = self.facts.limits.stop_after_disconnect_seconds
        if limit is not None and time.monotonic() - self._workshop.contact_at() > limit:
            self._halt(DEFAULT_GRACE_SECONDS)
            raise JobFailed(
                "disconnected", f"The control plane was not heard from for {limit:.0f} s, the limit of this job."
            )

    # -- small things ------------------------------------------------------------------------------------------

    def _open_report(self) -> None:
        secrets = self._secrets()
        self._mask = Masker(secrets)
        self._report = JobReport(
            self._record,
            self._workshop.client,
            self._workshop.journal,
            secrets=secrets,
            on_receipt=self._on_receipt,
            on_stale=lambda: self.wish(Wish(LOST, "the lease is not ours any more")),
            on_final=self._workshop.on_final,
        )
        if self._claim is not None:
            self._report.start()  # an adopted job's waits for register: before it there is no session to report in

    def _secrets(self) -> list[str]:
        """What must not show in a log. For an adopted app its own environment is the only place that still has them."""
        if self._claim is not None:
            return [*self._claim.secrets.values(), self._claim.source_token, self._claim.runtime_token]
        names = self.facts.secret_names
        if not names:
            return []
        runtime = self._patiently(lambda: self._workshop.executor.find(self._record))
        environment: Mapping[str, str] = self._patiently(runtime.environment) if runtime is not None else {}
        return [environment[name] for name in names if name in environment]

    def _on_receipt(self, receipt: Receipt) -> None:
        if receipt.stop_wished:
            grace = DEFAULT_GRACE_SECONDS if receipt.stop_grace_seconds is None else receipt.stop_grace_seconds
            self.wish(Wish(STOP, receipt.stop_reason, grace))

    def _took(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._record.image_id = runtime.image_id
        self._record.boot_id = self._record.boot_id or boot_id()
        self._workshop.journal.save(self._record)
        if self._report is not None:
            self._output = OutputPump(runtime, self._report.stream("run"), self._record.marks.get("run"))

    def _open_route(self, runtime: Runtime) -> None:
        address, token = self._address(runtime), self._record.runtime_token_sha256
        if self.facts.mode == "service" and self._unknown_at is None and address is not None and token:
            self._workshop.routes.open(self.facts.lease, address, token)

    def _address(self, runtime: Runtime) -> tuple[str, int] | None:
        """Where the app listens; asked of the engine once, and again when nothing answers there any more."""
        if self._known_address is None:
            try:
                self._known_address = runtime.address()
            except EngineError:
                return None  # the next look at its state says why
        return self._known_address

    def _answers(self, runtime: Runtime, asks: Callable[[tuple[str, int]], bool]) -> bool:
        address = self._address(runtime)
        return address is not None and asks(address)

    def _state(self, runtime: Runtime) -> RuntimeState:
        """The app's state; while the engine is silent, the state it was last known in: running."""
        try:
            return runtime.state()
        except EngineSilent:
            return RuntimeState("running")

    def _finish_output(self) -> None:
        if self._output is not None:
            self._output.finish()

    def _patiently(self, act: Callable[[], _T], *, interruptible: bool = True) -> _T:
        """Do it; while the engine does not answer, try again (containers live on without their engine's ear)."""
        while True:
            try:
                return act()
            except EngineSilent as problem:
                self._note_engine(problem)
            except EngineError as problem:
                if interruptible:
                    raise JobFailed("engine_refused", f"The container engine refused: {problem}") from problem
                self._note_engine(problem)
            if interruptible:
                self._wishes.made.wait(ENGINE_RETRY_SECONDS)
                self._wishes.raise_if_made()
            else:
                if self._wishes.is_for(SHUTDOWN):
                    self._detach()
                time.sleep(ENGINE_RETRY_SECONDS)

    def _note_engine(self, problem: EngineError) -> None:
        logger.warning(
            "engine trouble", extra={"action": "engine_trouble", "lease": self.facts.lease, "problem": str(problem)}
        )

    def _note_unknown(self) -> None:
        """Write down how long the server has not known this lease: a restart of the worker must not begin anew."""
        if abs(self._record.unknown_seconds - self._unknown_noted) >= UNKNOWN_NOTE_SECONDS:
            self._unknown_noted = self._record.unknown_seconds
            self._workshop.journal.save(self._record, durable=False)

    def _enter(self, phase: str) -> None:
        self._record.phase, self._record.found_ended = phase, False
        if phase == "starting":
            self._record.boot_id = boot_id()
        self._workshop.journal.save(self._record)

    def _note_child(self, child: ProcessIdentity | None) -> None:
        self._record.child = child
        self._workshop.journal.save(self._record, durable=False)

    def _tell(self, kind: str, **facts: object) -> None:
        if self._report is not None:
            self._report.event(kind, **facts)

    def _system(self, text: str) -> None:
        if self._report is not None:
            self._report.stream("system").line(text)

    def _stream_writer(self, name: str) -> Callable[[bytes], None]:
        assert self._report is not None
        return self._report.stream(name).write

    def _end_stream(self, name: str) -> None:
        if self._report is not None:
            self._report.stream(name).end()

    def _masked(self, text: str) -> str:
        return self._mask.feed(text) + self._mask.end()


class _Detached(Exception):
    """The runner's thread ends and leaves the app alone."""


class _AlreadyTold(Exception):
    """The former process had reported the end; only its traces are left."""


class _NobodyWaits:
    """Set when waiting for the server has no more sense: the lease is lost, or the worker shuts down."""

    def __init__(self, wishes: Wishes) -> None:
        self._wishes = wishes

    def is_set(self) -> bool:
        return self._wishes.is_for(LOST, SHUTDOWN)


def _listening(runtime: Runtime) -> Sequence[str] | None:
    try:
        return runtime.listening()
    except EngineError:
        return None


def _ended(state: RuntimeState) -> str:
    code = "" if state.exit_code is None else f" with code {state.exit_code}"
    return f"The app ended{code}" + (", out of memory" if state.oom_killed else "")
