"""manage.py workers: the fleet, a line per worker."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from jobs.scheduling import gigabytes
from workers import refusals, unreleased
from workers.overview import WorkerLine, as_json, fleet


class Command(BaseCommand):
    help = "List the workers with standing, jobs and GPUs."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--all", action="store_true", help="show revoked workers, too")
        parser.add_argument("--json", action="store_true", help="print one JSON object per line")

    def handle(self, *args: Any, **options: Any) -> None:
        seen = fleet(with_revoked=options["all"])
        if options["json"]:
            for line in seen.lines:
                self.stdout.write(json.dumps(as_json(line, now=seen.now)))
            return
        if not seen.lines:
            self.stdout.write("No worker yet. On the control plane: manage.py issue_enrollment_token NAME")
        for line in seen.lines:
            self.stdout.write(_sentence(line))


def _sentence(line: WorkerLine) -> str:
    gpus = ", ".join(
        f"{gpu.row.model or 'GPU'} {gigabytes(gpu.row.total_vram_mib)}{' (simulated)' if gpu.row.simulated else ''}"
        for gpu in line.gpus
    )
    drain = "" if line.drain is None or line.look == "revoked" else f"  {line.drain.sentence()}"
    refused = f"  {said}" if (said := refusals.sentence(line.worker)) else ""
    jobs = f"jobs {line.jobs}/{line.max_jobs}"
    if any(not one.freed for one in unreleased.on(line.worker)):
        refused += f"  GPU memory of an ended app is not released: manage.py free_gpu {line.worker.name}"
    return f"{line.worker.name:<20} {line.look:<9} {jobs}  {gpus or 'CPU only'}{drain}{refused}"
