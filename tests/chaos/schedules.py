"""Schedules of acts and faults, drawn and shrunk by hypothesis: what people, machines, networks and time do.

A schedule runs in one transaction that is rolled back at its end, so a thousand of them cost no clean-up. Each step is
one rule below; after each, `World.watch` checks the truths. At the end the world comes to rest (`rest.py`).
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from django.conf import settings
from django.db import connection, transaction
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from jobs import rescue
from jobs.lifecycle import request_stop
from jobs.models import Job, JobEvent
from tests.chaos import rest
from tests.chaos.fleet import MACHINES, SPACES
from tests.chaos.simulated_worker import SimulatedWorker, Task
from tests.chaos.wire import Loss
from tests.chaos.world import World, refresh

SPACE = st.sampled_from(range(len(SPACES)))
MACHINE = st.sampled_from(range(len(MACHINES)))
LOSS = st.sampled_from([Loss.NONE, Loss.NONE, Loss.NONE, Loss.ANSWER, Loss.REQUEST])
PICK = st.integers(0, 5)
SECONDS = st.sampled_from([5, 40, 100, 130, 400])
CHOICE = st.sampled_from(["go", "go", "go", "go", "fail"])
ACT = st.sampled_from(["drain", "resume", "disable", "enable"])

PLACE: st.SearchStrategy[str | int] = st.sampled_from(["automatic", "cpu", "gpu", *range(len(MACHINES))])

_F = TypeVar("_F", bound=Callable[..., None])


def step(**strategies: Any) -> Callable[[_F], Any]:
    """A rule whose act is watched, and whose failure tells the history of the jobs."""

    def decorate(function: _F) -> Any:
        @functools.wraps(function)
        def act(schedule: Schedule, /, **drawn: Any) -> None:
            with schedule.told_on_failure():
                function(schedule, **drawn)
                schedule.world.watch()

        return rule(**strategies)(act)

    return decorate


class Schedule(RuleBasedStateMachine):
    """One schedule against the functions behind the API, in this process."""

    stage: ClassVar[World]
    finished: ClassVar[int] = 0
    steps: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.broken = False
        self.looks = 0
        self.begin()

    # --- its ground ----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        self._ground = transaction.savepoint()
        refresh()
        self.world = self.copy_of_the_stage()
        settings.OPENFACE_GPU_WORKERS_ENABLED = True

    def copy_of_the_stage(self) -> World:
        return copy.deepcopy(self.stage)

    def end(self) -> None:
        transaction.set_rollback(False)
        transaction.savepoint_rollback(self._ground)

    def teardown(self) -> None:
        try:
            if not self.broken:
                with self.told_on_failure():
                    self.come_to_rest()
                Schedule.finished += 1
        finally:
            self.end()

    def come_to_rest(self) -> None:
        picture = rest.settle(self.world, once_more=self.looks == 0)
        rest.check_at_rest(self.world, picture)
        if self.looks < 2:
            rest.check_empty(self.world, picture)
        connection.check_constraints()

    def told_on_failure(self) -> _Told:
        return _Told(self)

    def worker(self, number: int) -> SimulatedWorker:
        return self.world.workers[number]

    # --- how hard its end is looked at --------------------------------------------------------------------------

    @initialize(looks=st.integers(0, 4))
    def look(self, looks: int) -> None:
        """To come to rest costs more than the acts before. So two in five schedules are emptied too, and one in five
        must stay at rest for another round; a failure shrinks to one that is looked at hardest.
        """
        self.looks = looks

    # --- people ------------------------------------------------------------------------------------------------

    @step(space=SPACE)
    def start(self, space: int) -> None:
        self.world.start(space)

    @step(space=SPACE, machine=st.none() | MACHINE)
    def restart(self, space: int, machine: int | None) -> None:
        self.world.start(space, replace=True, named=machine)

    @step(space=SPACE, twice=st.booleans())
    def stop(self, space: int, twice: bool) -> None:
        self.world.stop(space)
        if twice:
            self.world.stop_again(space)

    @step(space=SPACE, where=PLACE)
    def place(self, space: int, where: str | int) -> None:
        self.world.place(space, where)

    @step(machine=MACHINE, act=ACT)
    def stand(self, machine: int, act: str) -> None:
        self.world.stand(machine, act)

    @step(machine=MACHINE, back=st.booleans())
    def revoke(self, machine: int, back: bool) -> None:
        self.world.stand(machine, "revoke")
        if back:
            self.world.watch()
            self.world.replace_credential(machine)

    @step(machine=MACHINE)
    def rotate(self, machine: int) -> None:
        self.world.replace_credential(machine)

    @step(on=st.booleans())
    def switch(self, on: bool) -> None:
        self.world.switch_remote_workers(on=on)

    # --- machines, in order ------------------------------------------------------------------------------------

    @step(space=SPACE, steps=st.integers(0, 4))
    def run(self, space: int, steps: int) -> None:
        """The usual way: start, claim, and so many steps towards running."""
        self._run(space, steps)

    def _run(self, space: int, steps: int) -> None:
        self.world.start(space)
        self.world.watch()
        for worker in self.world.workers:
            claimed = self.world.claim(worker)
            if claimed is not None:
                for _ in range(steps):
                    self._work(worker, worker.journal[claimed.lease])
                return

    @step(machine=MACHINE, loss=LOSS)
    def claim(self, machine: int, loss: Loss) -> None:
        self.world.claim(self.worker(machine), loss)

    @step(machine=MACHINE)
    def claim_twice(self, machine: int) -> None:
        """The answer is lost, and the same key asks again."""
        self.world.claim(self.worker(machine), Loss.ANSWER)
        self.world.watch()
        self.world.claim(self.worker(machine))

    @step(task=PICK, choice=CHOICE, loss=LOSS)
    def work(self, task: int, choice: str, loss: Loss) -> None:
        for worker, chosen in self._picked(task):
            self._work(worker, chosen, choice, loss)

    @step(task=PICK, loss=LOSS)
    def work_on(self, task: int, loss: Loss) -> None:
        for worker, chosen in self._picked(task):
            for _ in range(3):
                self._work(worker, chosen, "go", loss)

    @step(task=PICK, loss=LOSS)
    def hand_back(self, task: int, loss: Loss) -> None:
        for worker, chosen in self._picked(task):
            self._work(worker, chosen, "decline", loss)

    def _picked(self, number: int) -> list[tuple[SimulatedWorker, Task]]:
        """One of the jobs that machines have in hand; none where there is none."""
        pairs = [(worker, task) for worker in self.world.workers for task in worker.tasks()]
        return [pairs[number % len(pairs)]] if pairs else []

    def _work(self, worker: SimulatedWorker, task: Task, choice: str = "go", loss: Loss = Loss.NONE) -> None:
        self.world.remember_report(worker, task)
        worker.work(task, choice, loss)

    @step(task=PICK, steps=st.integers(1, 3))
    def stop_at_work(self, task: int, steps: int) -> None:
        """A job is stopped, and its worker goes on with it for a while before it hears of that."""
        for worker, chosen in self._picked(task):
            if Job.objects.filter(pk=chosen.job).exists():
                request_stop(chosen.job)
            for _ in range(steps):
                self._work(worker, chosen)

    @step(machine=MACHINE, there=st.booleans(), works=st.booleans())
    def taken_by_another(self, machine: int, there: bool, works: bool) -> None:
        """A machine is cut off until its leases expire; others take its jobs; it comes back and goes on."""
        worker = self.worker(machine)
        worker.reachable = False
        self.world.pass_time(130)
        self.world.watch()
        for other in self.world.workers:
            claimed = self.world.claim(other)
            if claimed is not None and works:
                self._work(other, other.journal[claimed.lease])
                self.world.watch()
        worker.reachable = there
        for task in worker.tasks():
            self._work(worker, task)
        worker.beat()

    @step(space=SPACE, times=st.integers(2, 3))
    def nobody_comes_far(self, space: int, times: int) -> None:
        """Whoever takes the job is cut off until its lease expires; the one before comes back meanwhile."""
        self.world.start(space)
        self.world.watch()
        lost: SimulatedWorker | None = None
        for _ in range(times):
            for worker in [worker for worker in self.world.workers if worker is not lost]:
                worker.reachable = True
                worker.beat()
                for task in worker.tasks():
                    self._work(worker, task)
                self.world.watch()
                if self.world.claim(worker) is not None:
                    lost, worker.reachable = worker, False
                    self.world.pass_time(130)
                    self.world.watch()
                    break

    @step(machine=MACHINE, loss=LOSS)
    def beat(self, machine: int, loss: Loss) -> None:
        self.worker(machine).beat(loss)

    @step(machine=MACHINE, code=st.sampled_from([0, 1, 137]))
    def app_ends(self, machine: int, code: int) -> None:
        worker = self.worker(machine)
        running = [lease for lease, container in worker.containers.items() if container.running]
        if running:
            worker.app_ends(running[0], code)

    # --- machines, in trouble ------------------------------------------------------------------------------------

    @step(machine=MACHINE, reachable=st.booleans())
    def network(self, machine: int, reachable: bool) -> None:
        self.worker(machine).reachable = reachable

    @step(machine=MACHINE, loss=LOSS)
    def restart_worker(self, machine: int, loss: Loss) -> None:
        worker = self.worker(machine)
        worker.kill()
        worker.start()
        worker.register(loss)

    @step(machine=MACHINE)
    def kill_worker(self, machine: int) -> None:
        self.worker(machine).kill()

    @step(machine=MACHINE)
    def reboot(self, machine: int) -> None:
        worker = self.worker(machine)
        worker.reboot()
        worker.start()
        worker.register()

    @step(machine=MACHINE, answers=st.booleans(), beats=st.integers(0, 3))
    def engine(self, machine: int, answers: bool, beats: int) -> None:
        self.worker(machine).engine(answers=answers)
        for _ in range(beats):
            self.worker(machine).beat()

    @step(machine=MACHINE)
    def remove_by_hand(self, machine: int) -> None:
        worker = self.worker(machine)
        for lease in list(worker.containers)[:1]:
            worker.remove_by_hand(lease)

    @step(machine=MACHINE, paused=st.booleans())
    def pause(self, machine: int, paused: bool) -> None:
        self.worker(machine).paused = "Its owner plays." if paused else None
        self.worker(machine).beat()

    @step(machine=MACHINE, pick=PICK, what=st.sampled_from(["well", "foreign", "sick", "gone"]))
    def card(self, machine: int, pick: int, what: str) -> None:
        worker = self.worker(machine)
        if worker.gpus:
            gpu = worker.gpus[pick % len(worker.gpus)]
            gpu.foreign_mib = 21_000 if what == "foreign" else 0
            gpu.healthy, gpu.listed = what != "sick", what != "gone"
            worker.cards_failed = True
            worker.beat()

    @step(machine=MACHINE, answers=st.booleans())
    def gateway(self, machine: int, answers: bool) -> None:
        self.world.gateway(machine, answers=answers)

    @step(machine=MACHINE)
    def copied_credential(self, machine: int) -> None:
        self.world.second_machine(machine)

    @precondition(lambda self: self.world.ghosts)
    @step(loss=LOSS)
    def ghost_acts(self, loss: Loss) -> None:
        ghost = self.world.ghosts[0]
        self.world.claim(ghost, loss)
        for task in ghost.tasks():
            self._work(ghost, task)

    @step(pick=PICK)
    def late_duplicate(self, pick: int) -> None:
        self.world.late_duplicate(pick)

    @step(task=PICK)
    def event_is_missing(self, task: int) -> None:
        for worker, chosen in self._picked(task):
            chosen.next_seq += 2
            chosen.tell("health", healthy=True)
            worker.send(chosen)
            worker.send(chosen)

    # --- time and the control plane ------------------------------------------------------------------------------

    @step(seconds=SECONDS)
    def time_passes(self, seconds: int) -> None:
        self.world.pass_time(seconds)

    @step(machine=MACHINE, seconds=SECONDS)
    def partition(self, machine: int, seconds: int) -> None:
        """Cut off for so long, and noticed."""
        self.worker(machine).reachable = False
        self.world.pass_time(seconds)

    @step()
    def sweep(self) -> None:
        rescue.sweep()

    @step(seconds=SECONDS)
    def control_plane_away(self, seconds: int) -> None:
        self.world.away(seconds)

    @step()
    def dump(self) -> None:
        self.world.take_snapshot()

    @step(space=SPACE, steps=st.integers(0, 4), work=st.booleans())
    def forgotten_by_a_restore(self, space: int, steps: int, work: bool) -> None:
        """A dump is taken, a Space comes so far, and then the dump is put back: only machines know of it."""
        self.world.take_snapshot()
        self._run(space, steps)
        self.world.watch()
        self.world.put_back()
        for worker in self.world.workers:
            worker.beat()
            for task in worker.tasks() if work else ():
                self._work(worker, task)

    @precondition(lambda self: self.world.snapshot is not None)
    @step()
    def restore_the_dump(self) -> None:
        self.world.put_back()


class _Told:
    """Marks a schedule as broken, and adds the jobs' histories to the failure."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    def __enter__(self) -> None:
        Schedule.steps += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if not isinstance(error, Exception):
            return
        self._schedule.broken = True
        try:
            rows = JobEvent.objects.order_by("id").values_list(
                "job_id", "event", "from_state", "to_state", "ignored", "reason_code", "worker_name"
            )
            error.add_note("\n".join(" ".join(map(str, row)) for row in rows))
        except Exception as problem:
            error.add_note(f"(no history: {problem})")
