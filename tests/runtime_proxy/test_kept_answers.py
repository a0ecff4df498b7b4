"""What anybody may send is not kept for ever because it is long: the caches hold short keys only."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from pytest_django import Settings

from runtime_proxy import addresses, arrival, embedding
from runtime_proxy.plane import LONGEST_LABEL, LONGEST_SESSION_KEY, Plane


def path(mark: bytes) -> None:
    assert addresses.parse(b"/run/!" + mark + b"/" + mark + b"/") is None


def host(mark: bytes) -> None:
    edge = arrival.edge_of({"headers": [(b"host", mark)], "client": ("192.0.2.1", 1), "scheme": "http"})
    assert (edge.host, edge.forwarded_for) == (mark, b"192.0.2.1")


def policy(mark: bytes) -> None:
    line = b"frame-ancestors 'self'; report-uri " + mark
    assert embedding.admitting(line, b"https://portal") == b"frame-ancestors 'self' https://portal; report-uri " + mark


@pytest.mark.parametrize(
    ("ask", "cache"),
    [(path, addresses._decoded), (host, arrival._edge), (policy, embedding._admitting)],
    ids=["path", "host", "policy"],
)
def test_only_what_is_short_is_kept(ask: Callable[[bytes], None], cache: Any):
    long, short = uuid.uuid4().hex.encode() * 2000, uuid.uuid4().hex.encode() * 6
    before = cache.cache_info()

    ask(long)
    assert cache.cache_info().misses == before.misses

    ask(short)
    assert cache.cache_info().misses > before.misses
    hits = cache.cache_info().hits
    ask(short)
    assert cache.cache_info().hits > hits


def test_what_cannot_be_a_session_or_a_label_costs_no_query(settings: Settings):
    """Without a database at hand: a query would fail here."""

    async def ask() -> tuple[object, object]:
        plane = Plane()
        try:
            cookie = f"{settings.SESSION_COOKIE_NAME}={'a' * (LONGEST_SESSION_KEY + 1)}".encode()
            visitor = await plane.portal_visitor([(b"cookie", cookie)])
            return visitor.user_id, await plane.labelled("a" * (LONGEST_LABEL + 1))
        finally:
            await plane.close()

    assert asyncio.run(ask()) == (None, None)
