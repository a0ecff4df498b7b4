"""What `manage.py drain|resume|disable|enable|revoke` have in common: find the worker, act, say what came of it."""

from __future__ import annotations

import json
from time import monotonic, sleep
from typing import Any, ClassVar

from django.core.management.base import BaseCommand, CommandError, CommandParser

from workers import standing
from workers.errors import WorkerError
from workers.models import Worker
from workers.overview import WorkerLine, line_of

LOOK_SECONDS = 1.0  # between two looks at a worker that is waited for
TIMED_OUT = 124  # the exit status, as timeout(1) has it


class StandingCommand(BaseCommand):
    """One act on one worker, by its name. Audited as an act of the command line.

    Acts after which something runs out can wait for that: progress goes to stderr, the outcome alone to stdout. With
    --json the outcome is printed also where waiting was given up.
    """

    act: ClassVar[str]
    done: ClassVar[str]  # a sentence with {name} and {jobs}
    can_wait: ClassVar[bool] = False
    strands: ClassVar[bool] = False  # whether Spaces that are placed on the worker wait from now on

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="the worker's name")
        parser.add_argument("--reason", default="", help="why; shown to people and kept in the audit")
        parser.add_argument("--json", action="store_true", help="print the outcome as one JSON object")
        if self.can_wait:
            parser.add_argument("--wait", action="store_true", help="return when nothing is left on the worker")
            parser.add_argument(
                "--timeout", type=float, metavar="SECONDS", help=f"with --wait: give up then, with status {TIMED_OUT}"
            )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            worker = standing.worker_named(options["name"])
            touched = standing.running_on(worker.pk).count()
            worker = standing.ACTS[self.act](worker.pk, actor=None, reason=options["reason"])
        except WorkerError as error:
            raise CommandError(str(error)) from None
        given_up = None
        if options.get("wait"):
            line, given_up = self._wait(worker, options["timeout"])
        else:
            line, _now = line_of(worker)
        if options["json"]:
            outcome = {
                "worker_id": str(worker.pk),
                "name": worker.name,
                "scheduling": worker.scheduling,
                "revoked": worker.revoked_at is not None,
                "jobs_running": touched,
                "drain": None if line.drain is None else line.drain.as_json(),
            }
            self.stdout.write(json.dumps(outcome))
        if given_up is not None:
            raise given_up
        if options["json"]:
            return
        if options.get("wait"):
            self.stdout.write(f"{worker.name}: {_progress(line)}")
        else:
            self.stdout.write(self.done.format(name=worker.name, jobs=touched))
        if self.strands and (placed := [str(space) for space in standing.placed_on([worker.pk])]):
            self.stderr.write(f"Placed on {worker.name} by an operator, and waiting for it now: {', '.join(placed)}")

    def _wait(self, worker: Worker, timeout_seconds: float | None) -> tuple[WorkerLine, CommandError | None]:
        """Return when the worker says that it has nothing left, or why that is waited for no longer.

        With the worker as it is then.
        """
        deadline = None if timeout_seconds is None else monotonic() + timeout_seconds
        told = ""
        while True:
            worker.refresh_from_db()
            line, _now = line_of(worker)
            if line.drain is None:
                return line, CommandError(f"{worker.name} was opened again meanwhile.")
            if line.drain.complete:
                return line, None
            if (progress := _progress(line)) != told:
                self.stderr.write(f"{worker.name}: {progress}")
                told = progress
            if deadline is not None and monotonic() >= deadline:
                return line, CommandError(
                    f"{worker.name} after {timeout_seconds:g} s: {progress}", returncode=TIMED_OUT
                )
            sleep(LOOK_SECONDS)


def _progress(line: WorkerLine) -> str:
    return line.drain.sentence() if line.drain else "open"
