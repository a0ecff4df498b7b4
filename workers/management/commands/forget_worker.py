"""manage.py forget_worker NAME|ID: leave a revoked worker out of every list, and its name to another."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from workers import former, standing
from workers.errors import WorkerError


class Command(BaseCommand):
    help = "Leave a revoked worker with nothing on it out of every list, and its name to another. History stays."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="NAME|ID", help="the worker's name or id")
        parser.add_argument("--reason", default="", help="why; kept in the audit")
        parser.add_argument("--json", action="store_true", help="print the outcome as one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            worker = former.forget(standing.worker_named(options["name"]).pk, actor=None, reason=options["reason"])
        except WorkerError as error:
            raise CommandError(str(error)) from None
        if options["json"]:
            at = worker.forgotten_at.isoformat() if worker.forgotten_at is not None else None
            self.stdout.write(json.dumps({"worker_id": str(worker.pk), "name": worker.name, "forgotten_at": at}))
        else:
            self.stdout.write(f"{worker.name} ({worker.pk}) is forgotten. Its jobs' history stays; its name is free.")
