"""`manage.py keeper`: one loop that acts on what time decides. Two may run; one works at a time."""

from __future__ import annotations

import json
import logging
import signal
import threading
from argparse import ArgumentParser
from dataclasses import asdict
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import DatabaseError, connection

from jobs import rescue

logger = logging.getLogger(__name__)

ADVISORY_LOCK = 0x0FACE  # any fixed number: whoever holds it sweeps
LONGEST_PAUSE_SECONDS = 30.0


class Command(BaseCommand):
    help = "Expire leases, show jobs of silent workers as unavailable, give up spent jobs. Runs until stopped."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--once", action="store_true", help="sweep once and exit")
        parser.add_argument("--json", action="store_true", help="with --once: print what was moved as JSON")

    def handle(self, *args: Any, once: bool, json: bool, **options: Any) -> None:
        if once:
            self._report(rescue.sweep(), as_json=json)
            return
        stopped = threading.Event()

        def stop(signum: int, frame: FrameType | None) -> None:
            stopped.set()

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        pause = settings.OPENFACE_KEEPER_SECONDS
        while not stopped.wait(pause):
            pause = self._round(pause)

    def _round(self, pause: float) -> float:
        """One sweep if no other keeper works; returns the pause before the next, longer while the database is away."""
        try:
            with connection.cursor() as cursor:
                # Held by the session, so that it survives the sweep's transactions and dies with this process.
                cursor.execute("SELECT pg_try_advisory_lock(%s)", [ADVISORY_LOCK])
                row = cursor.fetchone()
            if row and row[0]:
                rescue.sweep()
            return float(settings.OPENFACE_KEEPER_SECONDS)
        except DatabaseError as error:
            logger.warning("the keeper cannot reach the database: %s", error, extra={"action": "keeper_waits"})
            connection.close()
            return min(pause * 2, LONGEST_PAUSE_SECONDS)

    def _report(self, swept: rescue.Swept, *, as_json: bool) -> None:
        if as_json:
            self.stdout.write(json.dumps(asdict(swept)))
        else:
            self.stdout.write(f"expired {swept.expired}, silent {swept.silent}, given up {swept.given_up}")
