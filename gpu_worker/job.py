"""One job in hand: what its steps share, and the ways in which they touch its record, report, route and app.

A step is a function over a `Job`: `beginning`, `adoption`, `serving`, `ending`; `runner` walks them in a thread.
Whatever a step does with the container engine it does patiently: an engine that is restarted fails no job.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from gpu_worker.confirmation import Confirmation
from gpu_worker.errors import EngineError, EngineSilent, JobFailed
from gpu_worker.executor import Runtime, RuntimeState
from gpu_worker.journal import JobFacts, JobRecord
from gpu_worker.masking import Masker
from gpu_worker.output import OutputPump
from gpu_worker.process_identity import ProcessIdentity, boot_id
from gpu_worker.protocol import Claim, Receipt
from gpu_worker.renewal import Renewal
from gpu_worker.reporting import JobReport
from gpu_worker.unknown_lease import UnknownLease
from gpu_worker.wishes import DEFAULT_GRACE_SECONDS, LOST, STOP, Wish, Wishes
from gpu_worker.workshop import Workshop

logger = logging.getLogger(__name__)
_T = TypeVar("_T")

ENGINE_RETRY_SECONDS = 1.0
REGISTER_POLL_SECONDS = 0.2
SHUTDOWN_DELIVERY_SECONDS = 5.0
LAST_LINE_CHARACTERS = 500


class Detached(Exception):
    """The runner's thread ends and leaves the app alone."""


class AlreadyTold(Exception):
    """The former process had reported the end; only its traces are left."""


class Job:
    def __init__(self, record: JobRecord, workshop: Workshop, claim: Claim | None) -> None:
        """*claim*: of a fresh job; None for what a former process of this worker left."""
        self.record, self.workshop, self.claim = record, workshop, claim
        self.wishes = Wishes()
        self.renewal = Renewal(record.facts, workshop.client)
        self.unknown = UnknownLease(record, workshop.journal)
        self.confirmation = Confirmation()
        """For an adopted job; a fresh one needs none."""
        self.report: JobReport | None = None
        self.runtime: Runtime | None = None
        self.healthy: bool | None = None
        """Whether the app answered last; None: not known yet."""
        self.ailment: str | None = None
        """What ailed it then, as a code; None: nothing."""
        self.ended_by_itself = False
        self.condemned: JobFailed | None = None
        """By what the job fails although its app would go on; set from outside."""
        self.runtime_token = None if claim is None else claim.runtime_token
        """The newest, which delivers the results of a batch job; None: not told since this process began."""
        self._reporting = False
        self._output: OutputPump | None = None
        self._known_address: tuple[str, int] | None = None
        self._mask = Masker(())

    @property
    def facts(self) -> JobFacts:
        return self.record.facts

    # -- the report --------------------------------------------------------------------------------------------

    def open_report(self) -> None:
        secrets = self._secrets()
        self._mask = Masker(secrets)
        self.report = JobReport(
            self.record,
            self.workshop.client,
            self.workshop.journal,
            secrets=secrets,
            on_receipt=self._on_receipt,
            on_stale=lambda: self.wishes.make(Wish(LOST, "the lease is not ours any more")),
            on_final=self.workshop.on_final,
        )
        if self.claim is not None:  # an adopted job's waits for register: before it there is no session to report in
            self._reporting = True
            self.report.start()

    def await_register(self, *, interruptible: bool = True, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Let an adopted job's report begin, where the answer to register says it is; it is waited for here.

        *interruptible* off before an end is told: there the wait is cut only by a lost lease (nobody wants to hear of
        the job then) and, with Detached, by a shutdown. On, it is cut by every wish: raises JobInterrupted.
        *meanwhile* is done again and again, and may raise.
        """
        if self.report is None or self._reporting:
            return
        while not self.confirmation.wait(REGISTER_POLL_SECONDS):
            meanwhile()
            if interruptible:
                self.wishes.raise_if_made()
            elif self.wishes.is_for(LOST):
                return
            elif self.wishes.shutting_down:
                self.detach()
        instruction = self.confirmation.instruction
        if instruction is not None:
            self.report.resume(next_seq=instruction.next_seq, log_offsets=instruction.log_offsets)
        self._reporting = True
        self.report.start()

    def _secrets(self) -> list[str]:
        """What must not show in a log. For an adopted app its own environment is the only place that still has them."""
        if self.claim is not None:
            return [*self.claim.secrets.values(), self.claim.source_token, self.claim.runtime_token]
        names = self.facts.secret_names
        if not names:
            return []
        runtime = self.patiently(lambda: self.workshop.executor.find(self.record))
        environment: Mapping[str, str] = self.patiently(runtime.environment) if runtime is not None else {}
        return [environment[name] for name in names if name in environment]

    def _on_receipt(self, receipt: Receipt) -> None:
        if receipt.stop_wished:
            grace = DEFAULT_GRACE_SECONDS if receipt.stop_grace_seconds is None else receipt.stop_grace_seconds
            self.wishes.make(Wish(STOP, receipt.stop_reason, grace))

    def tell(self, kind: str, **facts: object) -> None:
        """One event for the server."""
        if self.report is not None:
            self.report.event(kind, **facts)

    def say(self, text: str) -> None:
        """One line in the job's system log."""
        if self.report is not None:
            self.report.stream("system").line(text)

    def masked(self, text: str) -> str:
        return self._mask.feed(text) + self._mask.end()

    # -- the record --------------------------------------------------------------------------------------------

    def enter(self, phase: str) -> None:
        """Write down that the job is in *phase* now, before anything of it happens."""
        self.record.phase, self.record.found_ended = phase, False
        if phase == "starting":
            self.record.boot_id = boot_id()
            self.record.engine = self._engine_now()
        self.workshop.journal.save(self.record)

    def note_failure(self, reason: str, detail: str) -> None:
        """Write down how the job fails, before its results are delivered and the failure is told."""
        self.record.failure = (reason, detail)
        self.workshop.journal.save(self.record)

    def note_child(self, child: ProcessIdentity | None) -> None:
        """Write down a running build, for the next process of this worker to end it if we die first."""
        self.record.child = child
        self.workshop.journal.save(self.record, durable=False)

    def raise_if_condemned(self) -> None:
        if self.condemned is not None:
            raise self.condemned

    # -- the app -----------------------------------------------------------------------------------------------

    def took(self, runtime: Runtime) -> None:
        """The app is there: write down where, and begin to read its output."""
        self.runtime = runtime
        self.record.image_id = runtime.image_id
        self.record.boot_id = self.record.boot_id or boot_id()
        self.record.engine = self.record.engine or self._engine_now()
        self.workshop.journal.save(self.record)
        self.follow_output(runtime)

    def follow_output(self, runtime: Runtime) -> None:
        """Read the app's output from where the log is; again after each start of the app."""
        mark = self.record.marks.get("run")
        after = self._output.position if self._output is not None else mark.position if mark is not None else None
        if self.report is not None:
            self._output = OutputPump(runtime, self.report.stream("run"), after=after)

    def finish_output(self) -> None:
        """Wait for the last words of an app that has ended."""
        if self._output is not None:
            self._output.finish()

    def ended(self, state: RuntimeState) -> str:
        """How the app ended, for people, with its last line. Call it after `finish_output`."""
        code = "" if state.exit_code is None else f" with code {state.exit_code}"
        sentence = f"The app ended{code}" + (", out of memory." if state.oom_killed else ".")
        last = self._output.last_line() if self._output is not None else None
        return sentence if last is None else f"{sentence} Its last line: {last[:LAST_LINE_CHARACTERS]}"

    def state(self, runtime: Runtime) -> RuntimeState:
        """The app's state; while the engine is silent, the state it was last known in: running."""
        try:
            return runtime.state()
        except EngineSilent:
            return RuntimeState("running")

    def answers(self, runtime: Runtime, asks: Callable[[tuple[str, int]], bool]) -> bool:
        """Whether the app answers what *asks* asks at its address."""
        address = self._address(runtime)
        return address is not None and asks(address)

    def open_route(self, runtime: Runtime) -> None:
        """Let visitors in, where there may be any."""
        address, token = self._address(runtime), self.record.runtime_token_sha256
        if self.facts.mode == "service" and not self.unknown.now and address is not None and token:
            self.workshop.routes.open(self.facts.lease, address, token)

    def close_route(self) -> None:
        self.workshop.routes.close(self.facts.lease)

    def forget_address(self) -> None:
        """It may be another one now: an engine's restart moves it."""
        self._known_address = None

    def _address(self, runtime: Runtime) -> tuple[str, int] | None:
        """Where the app listens; asked of the engine once, and again when nothing answers there any more."""
        if self._known_address is None:
            try:
                self._known_address = runtime.address()
            except EngineError:
                return None  # the next look at its state says why
        return self._known_address

    # -- the engine --------------------------------------------------------------------------------------------

    def patiently(self, act: Callable[[], _T], *, interruptible: bool = True) -> _T:
        """Do it; while the engine does not answer, try again (containers live on without their engine's ear).

        *interruptible* off for what must be done in any case, such as a removal: there an engine that refuses is asked
        again too, and only a shutdown of the worker ends the trying.
        """
        while True:
            try:
                return act()
            except EngineSilent as problem:
                self.note_engine(problem)
            except EngineError as problem:
                if interruptible:
                    raise JobFailed("engine_refused", f"The container engine refused: {problem}") from problem
                self.note_engine(problem)
            if interruptible:
                self.wishes.made.wait(ENGINE_RETRY_SECONDS)
                self.wishes.raise_if_made()
            else:
                if self.wishes.shutting_down:
                    self.detach()
                time.sleep(ENGINE_RETRY_SECONDS)

    def _engine_now(self) -> str | None:
        try:
            return self.workshop.executor.incarnation()
        except EngineError:
            return None

    def note_engine(self, problem: EngineError) -> None:
        logger.warning(
            "engine trouble", extra={"action": "engine_trouble", "lease": self.facts.lease, "problem": str(problem)}
        )

    def detach(self) -> None:
        """This process ends, the app lives on; the next one adopts it."""
        if self.report is not None:
            self.report.wait_delivered(cancel=threading.Event(), timeout=SHUTDOWN_DELIVERY_SECONDS / 2)
            self.report.close()
        raise Detached
