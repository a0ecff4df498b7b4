"""`manage.py furnish_demo`: the step of `manage.py demo` that needs the database. Not meant to be called by hand."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from openface.demo.furnishing import admit_admin, admit_workers, import_samples
from openface.demo.machines import MACHINES
from openface.installation import Installation


class Command(BaseCommand):
    help = "Make the demo's administrator, workers and sample Spaces, where they are missing."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--port-base", type=int, required=True)

    def handle(self, *args: Any, **options: Any) -> None:
        installation = Installation(settings.OPENFACE_STATE_DIR, port_base=options["port_base"])
        admit_admin(installation)
        admit_workers(installation, MACHINES)
        import_samples()
