"""manage.py drain NAME: no new jobs for a worker; those that run may finish."""

from __future__ import annotations

from workers.management.standing_command import StandingCommand


class Command(StandingCommand):
    help = "Give a worker no new jobs; those that run may finish."
    act = "drain"
    done = "{name} is draining. It runs {jobs} job(s), which may finish."
    can_wait = True
