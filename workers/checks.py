"""System checks of this room's own settings: a wrong one is told in a sentence at the start, not by a 500 later."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register

from workers.api.throttling import parse_rate

# With a margin above this, a card of 8 GB is hardly worth sharing any more: more likely a typing error.
LARGEST_MARGIN_MIB = 4096
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


@register()
def vram_margin(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """The part of each shared GPU that is promised to nobody is an amount, and leaves something to share."""
    margin = settings.OPENFACE_VRAM_MARGIN_MIB
    name = f"OPENFACE_VRAM_MARGIN_MIB={margin}"
    if margin < 0:
        hint = "0 or more, in MiB; 512 where you are not sure."
        return [Error(f"{name} would promise more memory than there is.", hint=hint, id="workers.E003")]
    if margin > LARGEST_MARGIN_MIB:
        hint = "It is in MiB, and taken from every GPU: jobs that do not fit beside it get whole GPUs. 512 is usual."
        return [Warning(f"{name} keeps much of each GPU free.", hint=hint, id="workers.W004")]
    return []
