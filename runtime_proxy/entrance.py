"""The way in that HTTP and WebSocket share: from a raw path and a visitor to an upstream, or to an answer of ours.

Everything is decided here before a byte is forwarded.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, NamedTuple
from urllib.parse import urlencode, urlsplit

from django.conf import settings
from django.db import Error as DatabaseError
from psycopg_pool import PoolTimeout

from runtime_proxy import addresses, handover, pages
from runtime_proxy.access import ANYBODY, Admission, Visitor
from runtime_proxy.addresses import Address
from runtime_proxy.arrival import cookies_of, first
from runtime_proxy.asked import Asked
from runtime_proxy.headers import RawHeaders, app_path
from runtime_proxy.origin import may_act, on_the_portals_host, one_per_space, runtime_origin
from runtime_proxy.pages import Answer
from runtime_proxy.plane import Plane
from runtime_proxy.routing import Standing, Upstream
from spaces.forge.errors import ForgeError
from spaces.models import Space

# What our own parts may fail with while the apps are fine: the pool is empty, the database or the forge is away.
OUTAGES = (DatabaseError, PoolTimeout, ForgeError)


class Passage(NamedTuple):
    """Everything is settled: what is asked for, by whom, and where it goes."""

    visitor: Visitor
    admission: Admission
    upstream: Upstream
    path: bytes  # for the app, with the query


async def enter(
    plane: Plane,
    raw_path: bytes,
    query: bytes,
    visitor: Visitor,
    asked: Asked,
    *,
    headers: RawHeaders,
    elsewhere: Literal["redirect", "refuse", "serve"] = "redirect",
    bare_query: bool = False,
) -> Passage | Answer:
    """Decide about a request below `/run/`. Only an admitted visitor learns anything about the Space.

    `elsewhere`: what to do where it is not asked for under its own origin and name; a WebSocket's client follows no
    redirect, and the portal serves those on its own origin. `bare_query`: the target ends with a question mark, which
    the app shall see too.
    """
    if visitor.refused:
        return pages.token_refused(asked)
    address = addresses.parse(raw_path)
    if address is None:
        return pages.not_found(asked)
    redirect = None if elsewhere == "serve" else proper_host(address, raw_path, query, headers)
    if redirect is not None:
        return redirect if elsewhere == "redirect" else pages.not_found(asked)
    if visitor.user_id is not None and visitor.token_id is None and not may_act(headers, runtime_origin(address)):
        visitor = ANYBODY  # a neighbour's page asks, not the visitor: what is public it may have
    try:
        admission = await plane.admit(visitor, address.owner, address.name)
        if admission is None:
            return _refuse(visitor, raw_path, query, asked, headers)
        redirect = proper_place(address, admission, query) if elsewhere == "redirect" else None
        if redirect is not None:
            return redirect
        route = await plane.route(admission.space_id)
    except Space.DoesNotExist:
        return pages.not_found(asked)
    except OUTAGES:
        return pages.overloaded(asked)
    if isinstance(route, Standing):
        return pages.standing(route, asked, may_write=admission.may_write)
    path = with_query(app_path(address.rest or b"/", route.mount), query)
    return Passage(visitor, admission, route, path + b"?" if bare_query else path)


async def still_admitted(plane: Plane, passage: Passage, who: Callable[[], Awaitable[Visitor]]) -> bool:
    """Whether a long stream may go on: the visitor may still see the Space, and it still runs where it ran.

    `who` says who asks now; who came in as nobody stays nobody. While our own database is away nothing is cut: it says
    nothing about the app.
    """
    try:
        visitor = ANYBODY if passage.visitor.is_anonymous else await who()
        if visitor.refused:
            return False
        admission = await plane.admit(visitor, passage.admission.owner, passage.admission.name)
        if admission is None or admission.space_id != passage.admission.space_id:
            return False
        route = await plane.route(admission.space_id)
    except OUTAGES:
        return True
    except Space.DoesNotExist:
        return False
    return isinstance(route, Upstream) and route.lease_id == passage.upstream.lease_id


def with_query(path: bytes, query: bytes) -> bytes:
    """Put a raw path and a raw query together again."""
    return path + b"?" + query if query else path


def _refuse(visitor: Visitor, raw_path: bytes, query: bytes, asked: Asked, headers: RawHeaders) -> Answer:
    if not visitor.is_anonymous:
        return pages.not_found(asked)
    if not asked.navigation:
        return pages.sign_in(asked)
    return to_sign_in(raw_path, query, headers)


def to_sign_in(raw_path: bytes, query: bytes, headers: RawHeaders) -> Answer:
    """Send a browser to the portal, to come back as whoever is signed in there."""
    brought = cookies_of(headers)
    nonce = handover.nonce_for(brought)
    target = with_query(raw_path, query).decode("latin-1")
    wanted = urlencode({"to": target, "browser": handover.digest(nonce)})
    cookie = handover.set_cookie(handover.nonce_cookie_name(), nonce, max_age=handover.NONCE_SECONDS)
    location = f"{settings.PUBLIC_BASE_URL}{handover.PATH}?{wanted}"
    planted = handover.unplanting(brought, path=raw_path, host=first(headers, b"host"))
    return pages.redirect(302, location.encode("latin-1"), cookies=(cookie, *planted))


def proper_host(address: Address, raw_path: bytes, query: bytes, headers: RawHeaders) -> Answer | None:
    """Redirect to the host that an address belongs to, where each Space has its own; and away from the portal's host,
    where Spaces have another: no page of theirs may have its cookies.

    Before anything is decided, and by the name alone: it says nothing about what is there, and a sign-in begins on the
    host on which it has to end.
    """
    host = first(headers, b"host")
    if not one_per_space() and not on_the_portals_host(host):
        return None
    origin = runtime_origin(address)
    if urlsplit(origin).netloc.lower().encode("ascii") == host.lower():
        return None
    return pages.redirect(307, origin.encode("ascii") + with_query(raw_path, query))


def proper_place(address: Address, admission: Admission, query: bytes) -> Answer | None:
    """Redirect to a Space's canonical case, or to the slash that relative links need."""
    prefix = addresses.prefix_of(admission.owner, admission.name, address.root)
    if address.spelt != prefix or not address.rest:
        return pages.redirect(308, with_query(prefix + (address.rest or b"/"), query))
    return None
