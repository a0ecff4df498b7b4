"""Which Space a raw request path names, and what is left of it for the app. Pure.

The path is never decoded as a whole and dot segments are never resolved: what the browser spelt is what the app gets.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote_to_bytes, urlsplit

RUN = b"/run/"
RESULTS = b"/results/"  # files that batch jobs left: /results/{owner}/{name}/{job}/{path}
# What a forge allows in names; a segment of dots alone is a path trick, not a name.
_NAME = re.compile(rb"(?!\.+\Z)[A-Za-z0-9._-]{1,255}")
_LONGEST_SPELLING = 3 * 255  # each character as %41


class Address(NamedTuple):
    """`/run/{owner}/{name}{rest}`. `rest` is raw: empty, or from its first slash on."""

    owner: str
    name: str
    rest: bytes
    spelt: bytes  # the prefix as it came, to see whether it is the canonical one
    root: bytes = RUN


def parse_any(raw_path: bytes) -> Address | None:
    """Return what the path of anything names that belongs to a Space on the runtime origin, or None."""
    return parse(raw_path, root=RESULTS if raw_path.startswith(RESULTS) else RUN)


def parse(raw_path: bytes, *, root: bytes = RUN) -> Address | None:
    """Return what the path names, or None where it can name no Space."""
    if not raw_path.startswith(root):
        return None
    owner, slash, tail = raw_path[len(root) :].partition(b"/")
    if not slash:
        return None
    name, slash, rest = tail.partition(b"/")
    plain = _plain(owner), _plain(name)
    if plain[0] is None or plain[1] is None:
        return None
    return Address(owner=plain[0], name=plain[1], rest=slash + rest, spelt=root + owner + b"/" + name, root=root)


def _plain(segment: bytes) -> str | None:
    """Return the name that a path segment spells, or None."""
    return _decoded(segment) if len(segment) <= _LONGEST_SPELLING else None  # a longer one is not kept


@lru_cache(maxsize=4096)
def _decoded(segment: bytes) -> str | None:
    name = unquote_to_bytes(segment)
    return name.decode("ascii") if _NAME.fullmatch(name) else None


@lru_cache(maxsize=4096)
def prefix_of(owner: str, name: str, root: bytes = RUN) -> bytes:
    """Return the canonical prefix of a Space, without a trailing slash."""
    return root + owner.encode("ascii") + b"/" + name.encode("ascii")


def escaped_from(referer: str, *, host: str) -> bytes | None:
    """Return the prefix of the app whose page asked for a path outside it, or None.

    Only a Referer of this very host counts: another origin's pages have no app here.
    """
    try:
        parts = urlsplit(referer)
    except ValueError:
        return None
    if parts.netloc.lower() != host.lower() or not parts.path.isascii():
        return None
    address = parse(parts.path.encode("ascii"))
    return None if address is None else address.spelt
