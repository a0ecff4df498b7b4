"""manage.py resume NAME: end a worker's draining."""

from __future__ import annotations

from workers.management.standing_command import StandingCommand


class Command(StandingCommand):
    help = "End a worker's draining."
    act = "resume"
    done = "{name} takes jobs again."
