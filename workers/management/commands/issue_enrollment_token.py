"""manage.py issue_enrollment_token NAME: a one-time right to enroll one worker."""

from __future__ import annotations

import argparse
import json
import re
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from jobs.switch import remote_workers_enabled
from workers import enrollment
from workers.errors import WorkerError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class Command(BaseCommand):
    help = "Print a one-time enrollment token. The token alone is on stdout, everything else on stderr."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="the worker's name, for people")
        parser.add_argument(
            "--ttl", type=_duration, default=enrollment.DEFAULT_LIFE, help="how long the token lives: 90s, 15m, 2h, 1d"
        )
        parser.add_argument("--gateway", default="", metavar="URL", help="the worker's address, approved in advance")
        parser.add_argument("--local", action="store_true", help="a worker beside the control plane, for CPU jobs")
        parser.add_argument(
            "--replace", action="store_true", help="for a worker that exists: same id, new credential, jobs kept"
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object instead of the token")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            issued = enrollment.issue_token(
                options["name"],
                life=options["ttl"],
                gateway_url=options["gateway"],
                local=options["local"],
                replace=options["replace"],
            )
        except (WorkerError, ValueError) as error:
            raise CommandError(str(error)) from None
        row = issued.row
        if options["json"]:
            answer = {"token": issued.token, "name": row.worker_name, "expires_at": row.expires_at.isoformat()}
            self.stdout.write(json.dumps(answer))
        else:
            self.stdout.write(issued.token)
        self.stderr.write(
            f"For {row.worker_name}, once, until {row.expires_at:%Y-%m-%d %H:%M:%S} UTC. Save it on the worker's "
            "machine, as the file that WORKER_ENROLLMENT_TOKEN_FILE names, and run: openface-gpu-worker run"
        )
        if not (row.local or remote_workers_enabled()):
            self.stderr.write("OPENFACE_GPU_WORKERS_ENABLED is off: this server refuses remote workers until it is on.")


def _duration(text: str) -> timedelta:
    match = re.fullmatch(r"(\d{1,9})([smhd])", text)
    if match is None:
        raise argparse.ArgumentTypeError("write a duration like 90s, 15m, 2h or 1d")
    return timedelta(seconds=int(match[1]) * _UNITS[match[2]])
