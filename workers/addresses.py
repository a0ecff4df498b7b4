"""From where somebody calls, and whether workers may call from there."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from django.conf import settings

from workers.errors import AddressNotAllowed

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


def client_address(peer: str, forwarded_for: str = "") -> str:
    """Return the caller's address: the peer's, or what the trusted proxies before it say. "" where unknown.

    X-Forwarded-For is read from the right, and only as long as the hop that said it is in OPENFACE_TRUSTED_PROXIES:
    everything left of the first untrusted address could have been written by the caller.
    """
    address = _address(peer)
    if address is None:
        return ""
    for hop in reversed(forwarded_for.split(",") if forwarded_for else []):
        if not _within(address, _networks(tuple(settings.OPENFACE_TRUSTED_PROXIES))):
            break
        said = _address(hop)
        if said is None:
            break
        address = said
    return str(address)


def check_network(address: str) -> None:
    """Raise AddressNotAllowed unless OPENFACE_GPU_WORKER_NETWORKS is empty or holds the address."""
    networks = _networks(tuple(settings.OPENFACE_GPU_WORKER_NETWORKS))
    if not networks:
        return
    known = _address(address)
    if known is None or not _within(known, networks):
        raise AddressNotAllowed


def _address(text: str) -> Address | None:
    try:
        address = ip_address(text.strip())
    except ValueError:
        return None
    if isinstance(address, IPv4Address):
        return address
    # A dual-stack socket shows IPv4 callers as ::ffff:a.b.c.d; people write networks as a.b.c.d. And the zone of a
    # link-local address (fe80::1%eth0) is our interface's name: PostgreSQL's inet does not take it.
    return address.ipv4_mapped or IPv6Address(int(address))


def _within(address: Address, networks: Iterable[Network]) -> bool:
    return any(address.version == network.version and address in network for network in networks)


@functools.cache
def _networks(texts: tuple[str, ...]) -> tuple[Network, ...]:
    return tuple(ip_network(text, strict=False) for text in texts)
