"""The same schedules against a real web process: real sockets, real commits, a keeper beside, and threads.

Rows are put back between schedules from copies of the tables; a restored older database is the same act in the middle.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar

from django.apps import apps
from django.conf import settings
from django.db import connection, transaction
from hypothesis import strategies as st

from jobs import rescue
from jobs.models import Uptime
from tests.chaos.schedules import LOSS, MACHINE, SPACE, Schedule, step
from tests.chaos.simulated_worker import SimulatedWorker
from tests.chaos.wire import Loss
from tests.chaos.world import World, refresh

SECONDS = 60.0  # a guard against hanging
KEEPER_SECONDS = 0.3
CUTS = st.sampled_from([Loss.NONE, Loss.ANSWER, Loss.CUT])


def tables() -> list[str]:
    """All of ours but the control plane's own uptime. Their foreign keys are checked at the end of a transaction."""
    rooms = [apps.get_app_config(label) for label in ("jobs", "workers", "spaces")]
    names = [model._meta.db_table for room in rooms for model in room.get_models(include_auto_created=True)]
    return [name for name in names if name != Uptime._meta.db_table]


class Keeper:
    """The keeper's loop in a thread of its own, which can be asked to wait while tables are put back."""

    def __init__(self) -> None:
        self.busy = threading.RLock()
        self.problem: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keeper", daemon=True)

    def __enter__(self) -> Keeper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(SECONDS)

    def _run(self) -> None:
        try:
            while not self._stop.wait(KEEPER_SECONDS):
                with self.busy:
                    rescue.sweep()
        except BaseException as problem:  # told to the schedule, which fails by it
            self.problem = problem
        finally:
            connection.close()


def make_room_for_copies(*names: str) -> None:
    """A schema for each copy, with our tables in it and no more: neither indexes nor constraints."""
    with connection.cursor() as cursor:
        for name in names:
            cursor.execute(f"CREATE SCHEMA {name}")
            for table in tables():
                cursor.execute(f"CREATE UNLOGGED TABLE {name}.{table} AS TABLE public.{table} WITH NO DATA")


def copy_tables(name: str) -> None:
    """Copy all rows as they are at one moment, whoever writes meanwhile."""
    _write_anew(name, "public", "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")


def put_tables_back(name: str) -> None:
    """Replace all rows by the copy, once the calls that go on are over."""
    _write_anew("public", name, f"LOCK TABLE {', '.join(tables())} IN ACCESS EXCLUSIVE MODE")


def _write_anew(to: str, source: str, first: str) -> None:
    """Replace all rows. They are few, so that DELETE is much quicker than TRUNCATE; what refers to them is replaced at
    the same moment, and so no trigger of a foreign key needs to look.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(first)
        cursor.execute("SET LOCAL session_replication_role = replica")
        for table in tables():
            cursor.execute(f"DELETE FROM {to}.{table}")
            cursor.execute(f"INSERT INTO {to}.{table} SELECT * FROM {source}.{table}")


@dataclass
class CommittedWorld(World):
    """A world whose past is kept in copies of the tables, and in which a keeper acts at any time."""

    keeper: ClassVar[Keeper]
    alone: bool = False

    def quiet(self) -> AbstractContextManager[object]:
        return self.keeper.busy

    def keep_database(self) -> str:
        with self.keeper.busy:
            copy_tables("earlier")
        return "earlier"

    def put_database_back(self, name: str) -> None:
        with self.keeper.busy:
            put_tables_back(name)


class HttpSchedule(Schedule):
    """One schedule over HTTP."""

    keeper: ClassVar[Keeper]

    def begin(self) -> None:
        settings.OPENFACE_GPU_WORKERS_ENABLED = True
        self.world = self.copy_of_the_stage()
        self.world.switch_remote_workers(on=True)
        with self.keeper.busy:
            put_tables_back("stage")
            refresh()

    def end(self) -> None:
        for worker in self.world.everybody():
            worker.wire.close()
        problem, self.keeper.problem = self.keeper.problem, None
        assert problem is None, f"the keeper failed: {problem!r}"

    @step(machine=MACHINE, loss=CUTS)
    def claim_and_cut(self, machine: int, loss: Loss) -> None:
        self.world.claim(self.worker(machine), loss)

    @step(machine=MACHINE, loss=CUTS)
    def report_and_cut(self, machine: int, loss: Loss) -> None:
        for task in self.worker(machine).tasks():
            self._work(self.worker(machine), task, "go", loss)

    @step(space=SPACE, other=SPACE, loss=LOSS, restart=st.booleans())
    def at_once(self, space: int, other: int, loss: Loss, restart: bool) -> None:
        """All machines claim and report while people start, restart and stop, and the keeper sweeps."""
        acts: list[Callable[[], Any]] = [
            lambda: self.world.start(space, replace=restart),
            lambda: self.world.stop(other),
            rescue.sweep,
        ]
        acts += [functools.partial(self._all_it_can, worker, loss) for worker in self.world.workers]
        with ThreadPoolExecutor(len(acts)) as pool:
            for act in [pool.submit(_on_its_own_connection, act) for act in acts]:
                act.result(SECONDS)

    def _all_it_can(self, worker: SimulatedWorker, loss: Loss) -> None:
        worker.claim(loss)
        for task in worker.tasks():
            self._work(worker, task, "go", loss)
        worker.beat(loss)


def _on_its_own_connection(act: Callable[[], Any]) -> None:
    try:
        act()
    finally:
        connection.close()
