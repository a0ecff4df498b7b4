"""manage.py remove_held NAME [LEASE]: have a worker remove one container of a lease that nobody here knows."""

from __future__ import annotations

import uuid
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from workers import held, standing
from workers.errors import WorkerError
from workers.models import Worker


class Command(BaseCommand):
    help = "Have a worker remove one container on hold. Without LEASE: list what it has on hold."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="the worker's name")
        parser.add_argument("lease", nargs="?", type=uuid.UUID, help="the lease whose container is to go")
        parser.add_argument("--reason", default="", help="why; kept in the audit")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            worker = standing.worker_named(options["name"])
            if options["lease"] is None:
                self._list(worker)
                return
            held.remove(worker.pk, options["lease"], actor=None, reason=options["reason"])
        except WorkerError as error:
            raise CommandError(str(error)) from None
        self.stdout.write(f"{worker.name} removes the container of {options['lease']} with its next heartbeat.")

    def _list(self, worker: Worker) -> None:
        """One lease a line on stdout, so that it can be copied."""
        found = held.on([worker]).get(worker.pk, [])
        if not found:
            self.stderr.write(f"{worker.name} has nothing on hold.")
        for one in found:
            used = f"  {one.mib} MiB of GPU memory" if one.mib else ""
            self.stdout.write(f"{one.lease_id}{used}{'  is being removed' if one.removal_asked else ''}")
