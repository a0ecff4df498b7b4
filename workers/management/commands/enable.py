"""manage.py enable NAME: end a worker's being disabled."""

from __future__ import annotations

from workers.management.standing_command import StandingCommand


class Command(StandingCommand):
    help = "End a worker's being disabled."
    act = "enable"
    done = "{name} takes jobs again."
