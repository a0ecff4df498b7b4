"""Whose origin is whose: the portal's, and the one (or the ones) on which Space pages are served.

The addresses themselves are made in `spaces/origin.py`; this says which of them a browser's Origin header names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import urlsplit

from django.conf import settings

from spaces.origin import one_per_space, runtime_origin, runtime_url

__all__ = [
    "is_runtime_origin",
    "may_act",
    "on_the_portals_host",
    "one_per_space",
    "portal_origin",
    "runtime_origin",
    "runtime_url",
]

_SAYS_WHO = frozenset({b"origin", b"sec-fetch-site", b"sec-fetch-mode"})


def is_runtime_origin(origin: str) -> bool:
    """Whether an Origin header names the runtime origin, or one of them."""
    if not one_per_space():
        return origin.lower() == str(settings.OPENFACE_RUNTIME_ORIGIN).lower()
    before, _, after = settings.OPENFACE_RUNTIME_ORIGIN.lower().partition("{space}")
    return bool(re.fullmatch(f"{re.escape(before)}[a-z0-9-]{{1,63}}{re.escape(after)}", origin.lower()))


def label_of_host(host: str) -> str | None:
    """Return the label that names a Space, where each has a host of its own and this is one; None otherwise."""
    if not one_per_space():
        return None
    before, _, after = urlsplit(settings.OPENFACE_RUNTIME_ORIGIN.lower()).netloc.partition("{space}")
    found = re.fullmatch(f"{re.escape(before)}([a-z0-9-]{{1,63}}){re.escape(after)}", host.lower())
    return found[1] if found else None


def on_the_portals_host(host: bytes) -> bool:
    """Whether a Host header names the portal's host though Spaces have another. It would be the portal's cookies'."""
    return _hostname(host) == _forbidden_host(settings.PUBLIC_BASE_URL, settings.OPENFACE_RUNTIME_ORIGIN)


@lru_cache(maxsize=8)
def _forbidden_host(portal: str, runtime: str) -> bytes | None:
    ours, theirs = urlsplit(portal).hostname or "", urlsplit(runtime).hostname or ""
    return None if ours == theirs else ours.encode("ascii", "replace")


def _hostname(host: bytes) -> bytes:
    name, colon, port = host.rpartition(b":")
    found = name if colon and port.isdigit() else host
    return found.lower().strip(b"[]").rstrip(b".")


def portal_origin() -> str:
    """Return the portal's own origin, as browsers write it in Origin."""
    parts = urlsplit(settings.PUBLIC_BASE_URL)
    return f"{parts.scheme}://{parts.netloc}"


def may_act(headers: Iterable[tuple[bytes, bytes]], origin_of_space: str) -> bool:
    """Whether a request may count as the visitor's own wish, so that a session that came with it opens the Space.

    Hosts of one site are no strangers to browsers: `SameSite` cookies travel with whatever a sibling's page asks for.
    So a session counts for the Space's own pages, for the portal's, for programs, and for a plain navigation from
    anywhere, which its page cannot look into. Browsers send `Sec-Fetch-*` to TLS and to localhost only: elsewhere a
    sibling's GET from a script looks like a program's.
    """
    said = {name: value for name, value in headers if name in _SAYS_WHO}
    site = said.get(b"sec-fetch-site", b"")
    if site in (b"same-origin", b"none"):
        return True
    origin = said.get(b"origin")
    if origin is not None:
        named = origin.decode("latin-1").lower()
        return named in (origin_of_space.lower(), portal_origin().lower())
    return not site or said.get(b"sec-fetch-mode") == b"navigate"
