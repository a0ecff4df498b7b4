"""What `manage.py drain|resume|disable|enable|revoke` have in common: find the worker, act, say what came of it."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from django.core.management.base import BaseCommand, CommandError, CommandParser

from workers import standing
from workers.errors import WorkerError


class StandingCommand(BaseCommand):
    """One act on one worker, by its name. Audited as an act of the command line."""

    act: ClassVar[str]
    done: ClassVar[str]  # a sentence with {name}

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="the worker's name")
        parser.add_argument("--reason", default="", help="why; shown to people and kept in the audit")
        parser.add_argument("--json", action="store_true", help="print the outcome as one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            worker = standing.worker_named(options["name"])
            touched = standing.running_on(worker.pk).count()
            worker = standing.ACTS[self.act](worker.pk, actor=None, reason=options["reason"])
        except WorkerError as error:
            raise CommandError(str(error)) from None
        if options["json"]:
            outcome = {
                "worker_id": str(worker.pk),
                "name": worker.name,
                "scheduling": worker.scheduling,
                "revoked": worker.revoked_at is not None,
                "jobs_running": touched,
            }
            self.stdout.write(json.dumps(outcome))
        else:
            self.stdout.write(self.done.format(name=worker.name, jobs=touched))
