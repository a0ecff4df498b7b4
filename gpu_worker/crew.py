"""The jobs in hand: those claimed, those a former process left, and what the owner's pause does with them.

The main thread and the claim loop call it; each job has its own thread (runner.py).
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable

from gpu_worker import inventory
from gpu_worker.containers import ContainerEngine
from gpu_worker.errors import EngineError
from gpu_worker.executor import Executor
from gpu_worker.holdings import Holdings
from gpu_worker.journal import JobFacts, JobRecord, Journal
from gpu_worker.link import Link
from gpu_worker.machine import Machine
from gpu_worker.pause import PauseWatch
from gpu_worker.processes import ProcessExecutor
from gpu_worker.protocol import Claim
from gpu_worker.runner import JobRunner
from gpu_worker.wishes import HAND_BACK, Wish
from gpu_worker.workshop import Workshop

logger = logging.getLogger(__name__)

HANDED_BACK = "The owner of this machine needs it now."  # not the pause's own reason: the Space's people read this


class Crew:
    def __init__(
        self,
        *,
        executor: Executor,
        journal: Journal,
        machine: Machine,
        link: Link,
        holdings: Holdings,
        workshop: Workshop,
        pauses: PauseWatch,
        on_change: Callable[[], None],
    ) -> None:
        """*on_change* hears that nothing of a job is left; it must not wait for anything."""
        self._executor, self._journal, self._machine, self._link = executor, journal, machine, link
        self._holdings, self._workshop, self._pauses, self._on_change = holdings, workshop, pauses, on_change
        self._looked_at = 0.0

    def take_inventory(self) -> None:
        """Adopt what a former process left; later, when the engine does not answer yet."""
        picture = self._machine.picture(self._link.intervals.heartbeat_seconds)
        if picture.found is None:
            return
        records = inventory.take_inventory(self._journal, picture.found, self._workshop.work_dir)
        self._clear_strays({record.facts.lease for record in records})
        for record in records:
            self._hold(record, claim=None)
        self._link.inventory_done = True

    def adopt_latecomers(self, seen: frozenset[str]) -> frozenset[str]:
        """Take in what appeared without us: a create whose answer was lost, a restored snapshot of the engine.

        Nobody else would ever remove it. *seen* are those of the picture before: only what is in two pictures is
        really there, for one picture may be older than the end of a job. Each goes on as the server has said in a
        heartbeat that listed it. Returns what of this picture is not in hand.
        """
        picture = self._machine.newest
        if picture is None or picture.found is None or picture.taken_at == self._looked_at:
            return seen
        self._looked_at = picture.taken_at
        held = {runner.facts.lease for runner in self._holdings.all()}
        unheld = {one.facts.lease: one for one in picture.found if one.facts.lease not in held}
        for lease in seen & unheld.keys() & self._link.instructions.keys():
            instruction = self._link.instructions[lease]
            runner = self._hold(inventory.record_from_labels(unheld[lease]), claim=None)
            runner.obey(instruction, asked_at=0.0)
            runner.confirm(instruction)
        return frozenset(unheld)

    def confirm(self) -> None:
        """The server has answered register: adopted jobs may go on as it says."""
        if self._link.contact_at:
            for runner in self._holdings.all():
                runner.confirm(self._link.instructions.get(runner.facts.lease))

    def take(self, claim: Claim) -> None:
        """Start what was claimed."""
        record = JobRecord(
            JobFacts.of(claim), runtime_token_sha256=hashlib.sha256(claim.runtime_token.encode()).hexdigest()
        )
        self._hold(record, claim=claim)

    def hand_back_if_paused(self) -> None:
        """Stop what runs and let it go back to the line, where the owner's pause says so."""
        for runner in self._holdings.all():
            self._hand_back(runner)

    def end(self, wish: Wish, *, deadline: float) -> None:
        """Wish every job's end, and wait for it until *deadline* (monotonic)."""
        runners = self._holdings.all()
        for runner in runners:
            runner.wish(wish)
        for runner in runners:
            runner.join(max(0.1, deadline - time.monotonic()))

    def _hold(self, record: JobRecord, *, claim: Claim | None) -> JobRunner:
        runner = JobRunner(record, self._workshop, claim=claim, on_end=self._on_end)
        if self._holdings.add(runner):
            self._journal.save(record)
            self._hand_back(runner)
            runner.start()
        return runner

    def _hand_back(self, runner: JobRunner) -> None:
        pause = self._pauses.current
        if pause is not None and pause.stop_apps:
            runner.wish(Wish(HAND_BACK, HANDED_BACK))

    def _clear_strays(self, leases: set[str]) -> None:
        try:
            if isinstance(self._executor, ContainerEngine):
                self._executor.remove_stray_networks(leases)
            elif isinstance(self._executor, ProcessExecutor):
                self._executor.remove_strays(leases)
        except EngineError as problem:
            logger.warning("strays left", extra={"action": "strays_left", "problem": str(problem)})

    def _on_end(self, runner: JobRunner) -> None:
        self._holdings.drop(runner)
        self._on_change()
