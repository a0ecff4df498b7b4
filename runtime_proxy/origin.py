"""Whose origin is whose: the portal's, and the one (or the ones) on which Space pages are served.

The addresses themselves are made in `spaces/origin.py`; this says which of them a browser's Origin header names.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from django.conf import settings

from spaces.origin import one_per_space, runtime_origin, runtime_url

__all__ = ["is_runtime_origin", "one_per_space", "portal_origin", "runtime_origin", "runtime_url"]


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


def portal_origin() -> str:
    """Return the portal's own origin, as browsers write it in Origin."""
    parts = urlsplit(settings.PUBLIC_BASE_URL)
    return f"{parts.scheme}://{parts.netloc}"
