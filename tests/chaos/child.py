"""One process of a run: its own database, and batches of schedules, each with a seed that makes it again."""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
from django.db import connection, transaction
from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture import engine
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test
from psycopg.pq import ExecStatus

from tests.chaos.fleet import Fleet, found_fleet
from tests.chaos.http_schedules import (
    CommittedWorld,
    HttpSchedule,
    Keeper,
    copy_tables,
    make_room_for_copies,
    put_tables_back,
)
from tests.chaos.http_wire import HttpWire
from tests.chaos.installation import web_process
from tests.chaos.schedules import Schedule
from tests.chaos.stages import set_stage
from tests.chaos.wire import DirectWire

SHRINKING_SECONDS = 90  # a schedule that is nearly the shortest is good enough


def run(seeds: Iterator[int], *, schedules: int, over_http: bool, steps: int, batch: int, shrink: bool) -> int:
    """Run one batch per seed until there were so many schedules; print one JSON line of counts.

    1 where a schedule failed: its seed is printed first.
    """
    engine.MAX_SHRINKING_SECONDS = SHRINKING_SECONDS
    _hurry()
    options = settings(
        max_examples=batch,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    fleet = found_fleet()
    began = time.monotonic()
    failed = (_over_http if over_http else _in_process)(fleet, seeds, schedules, options)
    counts = {
        "schedules": Schedule.finished,
        "steps": Schedule.steps,
        "seconds": round(time.monotonic() - began, 1),
        "failed_seeds": failed,
    }
    print(json.dumps(counts), flush=True)
    return 1 if failed else 0


def _hurry() -> None:
    """The same few hundred statements come again and again: the server plans each once. And what lives long here is
    not looked through for garbage.
    """
    options = {"server_side_binding": True, "prepare_threshold": 1, "options": "-c plan_cache_mode=force_generic_plan"}
    connection.settings_dict["OPTIONS"].update(options)
    # Savepoints end with their schedule, which is rolled back.
    connection._savepoint_commit = lambda sid: None  # type: ignore[attr-defined]  # a method of the backend
    connection._savepoint_rollback = _roll_back_to  # type: ignore[attr-defined]
    connection.ensure_connection()
    connection.connection.prepared_max = None
    gc.collect()
    gc.freeze()
    gc.disable()  # `_tidy` collects


def _roll_back_to(savepoint: str) -> None:
    """Go back to a savepoint without psycopg's knowledge: it forgets every prepared statement at a rollback, for a
    table may have been made in between. None is made here.
    """
    statement = f"ROLLBACK TO SAVEPOINT {connection.ops.quote_name(savepoint)}"
    result = connection.connection.pgconn.exec_(statement.encode())
    if result.status != ExecStatus.COMMAND_OK:
        raise AssertionError(result.error_message.decode(errors="replace"))


def _in_process(fleet: Fleet, seeds: Iterator[int], schedules: int, options: settings) -> list[int]:
    def batch(seed: int) -> None:
        with transaction.atomic():
            Schedule.stage = set_stage(fleet, DirectWire, seed)
            try:
                _run_machine(Schedule, seed, options)
            finally:
                transaction.set_rollback(True)

    return _until_one_fails(seeds, schedules, batch)


def _over_http(fleet: Fleet, seeds: Iterator[int], schedules: int, options: settings) -> list[int]:
    def batch(seed: int) -> None:
        with Keeper() as keeper:
            HttpSchedule.keeper = CommittedWorld.keeper = keeper
            with keeper.busy:
                put_tables_back("founded")
                HttpSchedule.stage = set_stage(fleet, HttpWire, seed, CommittedWorld)
                copy_tables("stage")
            _run_machine(HttpSchedule, seed, options)

    make_room_for_copies("founded", "stage", "earlier")
    copy_tables("founded")
    with (
        tempfile.TemporaryDirectory(prefix="openface-chaos-") as directory,
        web_process(os.environ["DATABASE_URL"], Path(directory) / "web.log") as port,
    ):
        HttpWire.port = port
        failed = _until_one_fails(seeds, schedules, batch)
    assert deadlocks() == 0, "the database had to end a deadlock"
    return failed


def _until_one_fails(seeds: Iterator[int], schedules: int, batch: Callable[[int], None]) -> list[int]:
    while Schedule.finished < schedules:
        seed = next(seeds)
        try:
            batch(seed)
        except Exception:
            print(f"--- failed with seed {seed}:", file=sys.stderr)
            traceback.print_exc()
            return [seed]
        _tidy()
    return []


def _run_machine(kind: type[RuleBasedStateMachine], seed: int, options: settings) -> None:
    run_state_machine_as_test(hypothesis.seed(seed)(type(kind.__name__, (kind,), {})), settings=options)


def _tidy() -> None:
    """Rows that were rolled back or replaced are dead weight for the next schedules."""
    gc.collect()
    with connection.cursor() as cursor:
        cursor.execute("VACUUM")


def deadlocks() -> int:
    """How many deadlocks PostgreSQL had to end in this database."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        row = cursor.fetchone()
    assert row is not None
    return int(row[0])
