"""`manage.py up`: the control plane on this machine, with everything it needs."""

from __future__ import annotations

from typing import Any

import environ
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from openface.embedded_postgres import EmbeddedPostgresError
from openface.installation import DEFAULT_PORT_BASE, Installation, InstallationError
from openface.stack import Stack


class Command(BaseCommand):
    help = "Run PostgreSQL (unless DATABASE_URL names one), web, data and keeper until Ctrl-C."
    requires_system_checks: list[str] = []  # the database they look at is started here

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--port-base",
            type=int,
            default=environ.Env().int("PORT_BASE", default=DEFAULT_PORT_BASE),
            help="web listens here, data on the next port (environment: PORT_BASE)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        stack = Stack(Installation(settings.OPENFACE_STATE_DIR, port_base=options["port_base"]))
        stack.stop_on_signals()
        try:
            stack.up()
            stack.supervisor.say(f"the portal is at {stack.installation.public_url} (Ctrl-C stops everything)")
            stack.stop_wanted.wait()
        except (InstallationError, EmbeddedPostgresError) as error:
            raise CommandError(str(error)) from error
        finally:
            stack.down()
