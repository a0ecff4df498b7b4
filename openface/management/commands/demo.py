"""`manage.py demo`: OpenFace on this machine, to look at; `--check`: to see that it works."""

from __future__ import annotations

import sys
from typing import Any

import environ
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from openface.demo.check import check
from openface.demo.furnishing import ADMIN
from openface.demo.house import House
from openface.embedded_postgres import EmbeddedPostgresError
from openface.installation import DEFAULT_PORT_BASE, InstallationError

FIRST_SPACE = "demo/gpu-diagnostic"


class Command(BaseCommand):
    help = "Run a whole installation with two workers and sample Spaces until Ctrl-C."
    requires_system_checks: list[str] = []  # the database they look at is started here

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--port-base",
            type=int,
            default=environ.Env().int("PORT_BASE", default=0) or None,
            help=f"the first of four ports in a row (default {DEFAULT_PORT_BASE}; environment: PORT_BASE)",
        )
        parser.add_argument("--check", action="store_true", help="check it unattended and print one JSON line")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["check"]:
            if not check(options["port_base"]):
                sys.exit(1)
            return
        house = House(settings.OPENFACE_STATE_DIR, port_base=options["port_base"] or DEFAULT_PORT_BASE)
        house.stack.stop_on_signals()
        try:
            house.set_up()
            house.start_space(FIRST_SPACE)
            for line in self._tour(house):
                house.stack.supervisor.say(line)
            house.stack.stop_wanted.wait()
        except (InstallationError, EmbeddedPostgresError) as error:
            raise CommandError(str(error)) from error
        finally:
            house.take_down()

    @staticmethod
    def _tour(house: House) -> list[str]:
        public = house.installation.public_url
        password = house.installation.state_dir / "admin_password"
        return [
            "",
            f"Look at      {public}/",
            f"sign in as   {ADMIN}, password {password.read_text(encoding='utf-8').strip()} (kept in {password})",
            f"this runs    {public}/spaces/{FIRST_SPACE}/ on a GPU that is simulated",
            f"the fleet    {public}/fleet/, for operators {public}/admin/",
            "Ctrl-C       stops the Spaces, then the workers, then the rest",
            "",
        ]
