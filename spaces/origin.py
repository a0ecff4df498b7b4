"""Where a Space's pages are served: never on the portal's own origin, because they are untrusted code.

`OPENFACE_RUNTIME_ORIGIN` is one origin for all Spaces (a second host name, or the portal's host with another port), or
a template with `{space}`, which gives each Space an origin of its own. Only the last separates Spaces from each other.
"""

from __future__ import annotations

import base64
import hashlib
import re
from enum import StrEnum
from functools import lru_cache
from typing import Protocol
from urllib.parse import urlsplit

from django.conf import settings

from spaces.models import Space

_NOT_IN_A_LABEL = re.compile(r"[^a-z0-9]+")
_MAX_LABEL = 63  # RFC 1035
_HASH_BYTES = 10  # 80 bits: nobody finds a name whose host is another's


class Named(Protocol):
    """Anything that knows whose Space it is."""

    @property
    def owner(self) -> str: ...

    @property
    def name(self) -> str: ...


class Mode(StrEnum):
    """How far Spaces are apart from the portal and from each other; the later, the farther."""

    SECOND_PORT = "second_port"  # the portal's host: cookies ignore ports
    SECOND_HOST = "second_host"
    HOST_PER_SPACE = "host_per_space"


def mode() -> Mode:
    """Return which of the three this installation has."""
    if one_per_space():
        return Mode.HOST_PER_SPACE
    portal, runtime = urlsplit(settings.PUBLIC_BASE_URL), urlsplit(settings.OPENFACE_RUNTIME_ORIGIN)
    return Mode.SECOND_PORT if portal.hostname == runtime.hostname else Mode.SECOND_HOST


def one_per_space() -> bool:
    """Whether each Space has an origin of its own."""
    return "{space}" in settings.OPENFACE_RUNTIME_ORIGIN


def runtime_origin(space: Named) -> str:
    """Return the origin (scheme, host, port; no trailing slash) under which this Space's pages are served."""
    template: str = settings.OPENFACE_RUNTIME_ORIGIN
    return template.replace("{space}", _label(space.owner, space.name)) if one_per_space() else template


def runtime_url(space: Named) -> str:
    """Return the address of the Space's app, with the trailing slash it is served under."""
    return f"{runtime_origin(space)}/run/{space.owner}/{space.name}/"


def labelled(label: str) -> tuple[str, str] | None:
    """Return owner and name of the Space whose host begins with that label. One query, of all names."""
    for space in Space.objects.only("owner", "name"):
        if _label(space.owner, space.name) == label:
            return space.owner, space.name
    return None


def place_of(owner: str, name: str) -> str:
    """Return the label of the host that this Space alone is served on; "" where Spaces share one."""
    return _label(owner, name) if one_per_space() else ""


@lru_cache(maxsize=4096)
def _label(owner: str, name: str) -> str:
    """A host name label for a Space: readable, and different for every two Spaces (a-b/c and a/b-c)."""
    full = f"{owner}/{name}".lower()
    unique = base64.b32encode(hashlib.sha256(full.encode("utf-8")).digest()[:_HASH_BYTES]).decode("ascii").lower()
    readable = _NOT_IN_A_LABEL.sub("-", full).strip("-")[: _MAX_LABEL - len(unique) - 1].strip("-")
    return f"{readable}-{unique}" if readable else unique
