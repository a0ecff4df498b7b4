"""manage.py free_gpu NAME [LEASE]: free the GPUs of a worker on which an ended app has left memory."""

from __future__ import annotations

import json
import uuid
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from workers import standing, unreleased
from workers.errors import WorkerError
from workers.models import Worker

FREED = (
    "{name}: what the lease {lease} held on GPUs is freed. What is really still used there counts as use by others: "
    "only ending what holds it, or a restart of the machine, brings it back."
)


class Command(BaseCommand):
    help = "Free GPUs on which an ended app has left memory. Without LEASE: list what is left, and why."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="the worker's name")
        parser.add_argument("lease", nargs="?", type=uuid.UUID, help="the lease that is over")
        parser.add_argument("--reason", default="", help="why; kept in the audit")
        parser.add_argument("--json", action="store_true", help="print what is left as one JSON object per line")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            worker = standing.worker_named(options["name"])
            if options["lease"] is not None:
                worker = unreleased.free(worker.pk, options["lease"], actor=None, reason=options["reason"])
        except WorkerError as error:
            raise CommandError(str(error)) from None
        if options["lease"] is None or options["json"]:
            self._list(worker, as_json=options["json"])
        else:
            self.stdout.write(FREED.format(name=worker.name, lease=options["lease"]))

    def _list(self, worker: Worker, *, as_json: bool) -> None:
        """One lease a line on stdout, so that it can be copied."""
        found = unreleased.on(worker)
        if not (found or as_json):
            self.stderr.write(f"{worker.name} tells of no GPU memory that an ended app has left behind.")
        for one in found:
            plain = f"{one.lease}  {one.reason}{'  (freed)' if one.freed else ''}"
            self.stdout.write(json.dumps(one.as_json()) if as_json else plain)
