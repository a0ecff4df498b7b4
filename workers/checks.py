"""System checks of this room's own settings: a wrong one is told in a sentence at the start, not by a 500 later."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, register

from workers.api.throttling import parse_rate

RATES = ("OPENFACE_WORKER_RATE", "OPENFACE_HEARTBEAT_RATE")


@register()
def rates(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Every rate can be read, and the limit of enrollment lets somebody through."""
    problems: list[CheckMessage] = []
    for name in RATES:
        try:
            parse_rate(getattr(settings, name))
        except ValueError:
            problems.append(
                Error(
                    f"{name}={getattr(settings, name)!r} is not a rate.",
                    hint="Write calls per second / burst, for example 30/60.",
                    id="workers.E001",
                )
            )
    if settings.OPENFACE_ENROLL_PER_MINUTE < 1:
        problems.append(Error("OPENFACE_ENROLL_PER_MINUTE lets nobody enroll.", hint="1 or more.", id="workers.E002"))
    return problems
