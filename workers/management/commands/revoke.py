"""manage.py revoke NAME: void a worker's credential for good."""

from __future__ import annotations

from workers.management.standing_command import StandingCommand


class Command(StandingCommand):
    help = "Void a worker's credential for good and release its leases; history stays."
    act = "revoke"
    done = "{name} is revoked. It had {jobs} job(s)."
    strands = True
