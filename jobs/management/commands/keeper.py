"""`manage.py keeper`: one loop that acts on what time decides. Two may run; one works at a time."""

from __future__ import annotations

import json
import logging
import signal
import time
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import DatabaseError, connection

from jobs import artifacts, rescue

logger = logging.getLogger(__name__)

ADVISORY_LOCK = 0x0FACE  # any fixed number: whoever holds it sweeps
LONGEST_PAUSE_SECONDS = 30.0
STOPPING = (signal.SIGTERM, signal.SIGINT)
PRUNE_SECONDS = 3600.0  # results are kept for days: an hour more is nothing


class Command(BaseCommand):
    help = (
        "Expire leases, show jobs of silent workers as unavailable, give up spent jobs, remove old results of batch "
        "jobs. Runs until stopped."
    )
    _prune_at = 0.0  # monotonic; 0: soon after the start

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--once", action="store_true", help="sweep once and exit")
        parser.add_argument("--json", action="store_true", help="with --once: print what was moved as JSON")

    def handle(self, *args: Any, once: bool, json: bool, **options: Any) -> None:
        if once:
            self._report(rescue.sweep(), as_json=json)
            self._prune()
            return
        # No handler: it would run in the middle of anything, and must not wait for a lock that is held there. What
        # comes during a round is pending until its end.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
        pause = settings.OPENFACE_KEEPER_SECONDS
        while signal.sigtimedwait(STOPPING, pause) is None:
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
                self._prune()
            return float(settings.OPENFACE_KEEPER_SECONDS)
        except DatabaseError as error:
            logger.warning("the keeper cannot reach the database: %s", error, extra={"action": "keeper_waits"})
            connection.close()
            return min(pause * 2, LONGEST_PAUSE_SECONDS)

    def _prune(self) -> None:
        """Remove results that were kept for long enough, once in a while. Disk trouble must not stop the sweeps."""
        if time.monotonic() < self._prune_at:
            return
        self._prune_at = time.monotonic() + PRUNE_SECONDS
        try:
            removed = artifacts.prune()
        except OSError as problem:
            logger.warning("results not removed: %s", problem, extra={"action": "artifacts_left"})
        else:
            if removed:
                logger.info("removed %d old results", removed, extra={"action": "artifacts_pruned"})

    def _report(self, swept: rescue.Swept, *, as_json: bool) -> None:
        if as_json:
            self.stdout.write(json.dumps(asdict(swept)))
        else:
            self.stdout.write(f"expired {swept.expired}, silent {swept.silent}, given up {swept.given_up}")
