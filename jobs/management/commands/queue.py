"""manage.py queue: the line, and for each job one sentence per worker and GPU on why it has not started."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from jobs import queue
from jobs.line import COUNTED_PLACES
from jobs.queue import Entry, Queue


class Command(BaseCommand):
    help = "Show who waits, in order, and why."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--limit", type=int, default=20, help=f"jobs to show, at most {COUNTED_PLACES}")
        parser.add_argument("--json", action="store_true", help="print one JSON object per job, the line first")

    def handle(self, *args: Any, **options: Any) -> None:
        if not 1 <= options["limit"] <= COUNTED_PLACES:
            raise CommandError(f"--limit is a number between 1 and {COUNTED_PLACES}.")
        seen = queue.read(limit=options["limit"])
        if options["json"]:
            for entry in [*seen.line, *seen.beside]:
                self.stdout.write(json.dumps(queue.as_json(entry, now=seen.now)))
            return
        self._tell(seen)

    def _tell(self, seen: Queue) -> None:
        if not seen.length and not seen.beside:
            self.stdout.write("Nothing waits.")
        for entry in seen.line:
            self._entry(entry, seen, mark=f"{entry.waiting.place}.")
        if seen.is_cut:
            self.stdout.write(f"… and {seen.length - len(seen.line)} more in line.")
        if seen.beside:
            self.stdout.write("Not in the line:")
        for entry in seen.beside:
            self._entry(entry, seen, mark="-")

    def _entry(self, entry: Entry, seen: Queue, *, mark: str) -> None:
        job, waiting = entry.job, entry.waiting
        waited = int((seen.now - job.queued_at).total_seconds())
        needed = queue.needs(job.requirement)
        self.stdout.write(f"{mark:<4} {job.owner}/{job.repo}@{job.revision[:7]}  needs {needed}  waits {waited} s")
        self.stdout.write(f"     {waiting.sentence}")
        for reason in waiting.workers:
            for said in reason.sentences():
                if said.reason == waiting.sentence:
                    continue  # told already
                # The sentences name worker and GPU themselves.
                self.stdout.write(f"       {'never: ' if said.never else ''}{said.reason}")
