"""How a request came to us: from which address, over which scheme, under which host name."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from django.conf import settings

from runtime_proxy import proxies
from runtime_proxy.headers import Edge, forwarded_for
from runtime_proxy.origin import portal_origin

LONGEST_KEPT_HOST = 300  # a name has up to 253 characters, and a port; what is longer shall not fill our memory


def edge_of(scope: dict[str, Any]) -> Edge:
    """Return how the browser called us. What proxies report counts only from OPENFACE_TRUSTED_PROXIES."""
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    client = scope.get("client")
    peer = client[0] if client else "unknown"
    scheme = b"https" if scope.get("scheme") in ("https", "wss") else b"http"  # ASGI lets servers leave it out
    portal = _portal(settings.PUBLIC_BASE_URL)
    if proxies.is_trusted(peer):
        scheme = _last(headers, b"x-forwarded-proto") or scheme
        return Edge(first(headers, b"host"), scheme, forwarded_for(peer, headers), portal)
    host = first(headers, b"host")
    return (_edge if len(host) <= LONGEST_KEPT_HOST else _new_edge)(host, scheme, peer, portal)


def _new_edge(host: bytes, scheme: bytes, peer: str, portal: bytes) -> Edge:
    return Edge(host, scheme, forwarded_for(peer, ()), portal)


_edge = lru_cache(maxsize=1024)(_new_edge)


@lru_cache(maxsize=8)
def _portal(_base_url: str) -> bytes:
    return portal_origin().encode("ascii")


def first(headers: Iterable[tuple[bytes, bytes]], wanted: bytes) -> bytes:
    """Return the first header of that name, or b""."""
    for name, value in headers:
        if name == wanted:
            return value
    return b""


def cookies_of(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return all cookies in one line: HTTP/2 front ends may send several."""
    return b"; ".join([value for name, value in headers if name == b"cookie"])


def _last(headers: Iterable[tuple[bytes, bytes]], wanted: bytes) -> bytes:
    value = b"".join(value for name, value in headers if name == wanted).rsplit(b",", 1)[-1].strip().lower()
    return value if value in (b"http", b"https") else b""
