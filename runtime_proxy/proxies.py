"""Whose word counts about where a request came from: that of the proxies in OPENFACE_TRUSTED_PROXIES alone.

Imports no models: the server loads it before there are any.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import ip_address, ip_network

from django.conf import settings


def is_trusted(peer: str) -> bool:
    """Whether what the caller at that address reports counts."""
    trusted = settings.OPENFACE_TRUSTED_PROXIES
    return bool(trusted) and _is_among(peer, tuple(trusted))


def reported_address(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return who spoke to the trusted proxy that we speak to, as it reports; None where it does not."""
    last = b""
    for name, value in headers:
        if name == b"x-forwarded-for":
            last = value
    return last.rpartition(b",")[2].strip().decode("latin-1") or None


@lru_cache(maxsize=1024)
def _is_among(peer: str, networks: tuple[str, ...]) -> bool:
    try:
        address = ip_address(peer)
        return any(address in ip_network(network, strict=False) for network in networks)
    except ValueError:
        return False
