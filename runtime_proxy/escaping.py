"""Requests that left their app's prefix: `/static/x` of a page below `/run/alice/app/`. They are sent back below it.

Told by the Referer, or, where each Space has a host of its own, by that host. Also below words that are ours
(`/results`, `/healthz`): a page of an app means its own. Their owners are told which paths (`escapes`).
"""

from __future__ import annotations

from typing import Any

from runtime_proxy import addresses, pages
from runtime_proxy.arrival import first
from runtime_proxy.asked import Asked
from runtime_proxy.entrance import OUTAGES
from runtime_proxy.headers import RawHeaders
from runtime_proxy.origin import label_of_host
from runtime_proxy.pages import Answer
from runtime_proxy.plane import Plane, plane


def told_by_referer(headers: RawHeaders) -> bytes | None:
    """The prefix of the app whose page asks, where the page was on this host."""
    referer = first(headers, b"referer")
    if not referer:
        return None
    return addresses.escaped_from(referer.decode("latin-1"), host=first(headers, b"host").decode("latin-1"))


async def told_by_host(here: Plane, headers: RawHeaders) -> bytes | None:
    """The prefix of the app whose own host was asked, where the visitor may see it. Raises what `admit` raises."""
    label = label_of_host(first(headers, b"host").decode("latin-1"))
    named = await here.labelled(label) if label else None
    if named is None:
        return None
    admission = await here.admit(await here.visitor(headers), *named)
    return None if admission is None else addresses.prefix_of(admission.owner, admission.name)


async def answered(scope: dict[str, Any]) -> Answer:
    """The way back below the prefix, or that there is nothing here."""
    headers, path, query = scope["headers"], scope["raw_path"], scope["query_string"]
    asked = Asked(scope["method"], headers)
    here = plane()
    try:
        by_page = told_by_referer(headers)
        prefix = by_page or await told_by_host(here, headers)
    except OUTAGES:
        return pages.overloaded(asked)
    if prefix is None or not path.startswith(b"/"):
        return pages.not_found(asked)
    if by_page or path != b"/":  # who types a Space's host into the browser left no prefix
        here.escapes.note(prefix, path)
    # Within one origin, and apps compare their Referer.
    return pages.redirect(307, prefix + path + (b"?" + query if query else b""), referrer=b"same-origin")
