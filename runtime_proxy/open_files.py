"""How many files and sockets this process may have open. Shells and systemd begin with 1,024: one visitor has that."""

from __future__ import annotations

import logging
import resource
from contextlib import suppress

logger = logging.getLogger(__name__)


def allowed() -> int:
    """How many at once."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def allow_most() -> None:
    """From now on as many as the system lets this process have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # some systems name a number here that they do not grant
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def warn_below(needed: int) -> None:
    """Say in the log that there are too few for what the settings allow."""
    if allowed() < needed:
        logger.warning(
            "Only %d files may be open at once, and OPENFACE_RUN_MAX_PER_SPACE needs %d: raise the limit "
            "(LimitNOFILE= in a unit, ulimits in compose), or lower the setting.",
            allowed(),
            needed,
        )
