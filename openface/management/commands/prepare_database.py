"""`manage.py prepare_database`: bring the database's tables up to date, safely beside other starting processes."""

from __future__ import annotations

from typing import Any

import psycopg
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand

# Any constant of ours; whoever migrates holds it.
_LOCK = 0x6F70656E66616365  # "openface"


class Command(BaseCommand):
    help = "Apply migrations. Processes that do so at the same time wait for each other."
    requires_system_checks: list[str] = []  # the tables they may look at are what we make here

    def handle(self, *args: Any, **options: Any) -> None:
        # A connection of its own, past any pooler: the lock belongs to the connection.
        with psycopg.connect(settings.OPENFACE_DIRECT_DATABASE_URL, autocommit=True) as connection:
            connection.execute("SELECT pg_advisory_lock(%s)", [_LOCK])
            call_command("migrate", interactive=False, verbosity=options["verbosity"] - 1)
