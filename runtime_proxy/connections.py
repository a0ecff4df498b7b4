"""How many connections one address may have open at once, whatever it does with them.

Counted from the moment they are accepted, so idle ones, heads and bodies that never end and WebSockets count alike:
each takes a file of this process, which all visitors share. What may be under way to apps is counted besides
(limits.py).

A trusted proxy's connections are many people's. There the address that it reports counts, while a request is answered.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from functools import lru_cache
from ipaddress import IPv6Address, ip_address

from django.conf import settings

from runtime_proxy import open_files

logger = logging.getLogger(__name__)

SHARE = 4  # no address has more than one file in so many, whatever the setting says
FILES_OF_A_REQUEST = 2  # the browser's connection and the gateway's
OTHER_FILES = 512  # the database's connections, idle ones to gateways, files that are handed out
LONGEST_ADDRESS = 64  # characters; what is longer is no address, and is not kept
_SECONDS_BETWEEN_WORDS = 60.0


class Connections:
    """What is open. Each `take` that was granted needs its `give`."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()
        self._said_at = float("-inf")

    def take(self, party: str) -> bool:
        """Count one more of that party (see `party_of`); whether it may have it."""
        if self._open[party] >= most():
            self._say(party)
            return False
        self._open[party] += 1
        return True

    def give(self, party: str) -> None:
        """It is closed."""
        self._open[party] -= 1
        if self._open[party] <= 0:
            del self._open[party]

    def of(self, party: str) -> int:
        """How many it has."""
        return self._open[party]

    def _say(self, party: str) -> None:
        now = time.monotonic()
        if now - self._said_at >= _SECONDS_BETWEEN_WORDS:
            self._said_at = now
            logger.warning(
                "%s has %d connections, as many as one address may have (OPENFACE_RUN_MAX_CONNECTIONS_PER_ADDRESS). "
                "Is it a proxy? Then name it in OPENFACE_TRUSTED_PROXIES.",
                party,
                most(),
            )


CONNECTIONS = Connections()
"""Of this process."""


def most() -> int:
    """How many one address may have."""
    share = max(1, open_files.allowed() // SHARE)
    chosen: int = settings.OPENFACE_RUN_MAX_CONNECTIONS_PER_ADDRESS
    return min(chosen, share) if chosen > 0 else share


def files_needed() -> int:
    """How many files a Space takes that is as busy as it may be, and who it leaves room for."""
    per_space: int = settings.OPENFACE_RUN_MAX_PER_SPACE
    return FILES_OF_A_REQUEST * per_space + OTHER_FILES


@lru_cache(maxsize=4096)
def _party(address: str) -> str:
    try:
        parsed = ip_address(address.partition("%")[0].strip("[]"))
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return f"{IPv6Address(int(parsed) >> 64 << 64)}/64"


def party_of(address: str) -> str:
    """Who an address counts as: itself; of IPv6 its network, since one machine has all addresses of it."""
    return _party(address[:LONGEST_ADDRESS])
