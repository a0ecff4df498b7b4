"""manage.py disable NAME: no new jobs for a worker; those that run are stopped."""

from __future__ import annotations

from workers.management.standing_command import StandingCommand


class Command(StandingCommand):
    help = "Give a worker no new jobs and stop those that run."
    act = "disable"
    done = "{name} is disabled. {jobs} job(s) of it are being stopped."
    can_wait = True
    strands = True
