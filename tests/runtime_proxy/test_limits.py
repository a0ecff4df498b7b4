"""How much may be under way at once, and what the one too many is told."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from pytest_django import Settings

from jobs.models import Job
from runtime_proxy.access import ANYBODY, Visitor
from runtime_proxy.headers import Edge
from runtime_proxy.limits import Limits, caller
from tests.runtime_proxy.data_plane import DataPlane, until
from tests.runtime_proxy.upstreams import Asked, Upstream

RunSpace = Callable[..., Job]


@pytest.fixture
def waiting_app(upstream: Upstream) -> Iterator[Upstream]:
    """An app that answers nobody before the test is over."""
    over = threading.Event()

    async def wait(asked: Asked) -> None:
        while not over.is_set() and not asked.reader.at_eof():
            await asked.reader.read(1)

    upstream.handler = wait
    yield upstream
    over.set()


def ask(data_plane: DataPlane, open_: ExitStack, path: str = "/run/alice/app/") -> socket.socket:
    """Send a request and leave it open."""
    client = open_.enter_context(data_plane.connect())
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
    return client


def test_one_visitor_leaves_room_for_others(
    settings: Settings, run_space: RunSpace, waiting_app: Upstream, request: pytest.FixtureRequest
):
    settings.OPENFACE_RUN_MAX_PER_VISITOR = 3
    data_plane: DataPlane = request.getfixturevalue("data_plane")
    run_space()

    with ExitStack() as open_:
        for _ in range(3):
            ask(data_plane, open_)
        until(lambda: len(waiting_app.seen) == 3)
        refused = data_plane.get("/run/alice/app/")

    assert refused.status == 429
    assert json.loads(refused.body)["code"] == "too_many_requests"
    assert json.loads(refused.body)["limit"] == 3
    assert refused.one("retry-after") is not None
    until(lambda: waiting_app.open_connections == 0)
    with ExitStack() as open_:  # what is over does not count any more
        ask(data_plane, open_)
        until(lambda: len(waiting_app.seen) == 4)


def test_one_space_leaves_room_for_others(
    settings: Settings, run_space: RunSpace, waiting_app: Upstream, request: pytest.FixtureRequest
):
    settings.OPENFACE_RUN_MAX_PER_SPACE = 2
    data_plane: DataPlane = request.getfixturevalue("data_plane")
    worker = run_space().worker
    run_space("bob/other", worker=worker)

    with ExitStack() as open_:
        for _ in range(2):
            ask(data_plane, open_)
        until(lambda: len(waiting_app.seen) == 2)
        refused = data_plane.navigate("/run/alice/app/")
        ask(data_plane, open_, "/run/bob/other/")
        until(lambda: len(waiting_app.seen) == 3)

    assert refused.status == 503
    assert "2 requests to this app are open" in refused.body.decode()


@pytest.mark.parametrize(
    ("visitor", "forwarded_for", "who"),
    [
        (Visitor(7), b"10.0.0.1", 7),
        (ANYBODY, b"10.0.0.1", b"10.0.0.1"),
        (ANYBODY, b"198.51.100.4, 10.0.0.1", b"198.51.100.4"),  # as a trusted proxy at 10.0.0.1 reports
        (ANYBODY, b"6.6.6.6, 198.51.100.4, 10.0.0.1", b"198.51.100.4"),  # what the caller itself claimed does not count
        (ANYBODY, b"unknown", b"unknown"),
    ],
)
def test_a_visitor_is_a_person_or_an_address(visitor: Visitor, forwarded_for: bytes, who: object):
    assert caller(visitor, Edge(b"h", b"http", forwarded_for)) == who


def test_a_limit_of_nothing_is_none(settings: Settings):
    settings.OPENFACE_RUN_MAX_PER_VISITOR = settings.OPENFACE_RUN_MAX_PER_SPACE = 0
    limits = Limits()

    assert {limits.take("me", 1) for _ in range(1000)} == {None}
    assert limits.under_way == 1000


def test_what_was_refused_does_not_count(settings: Settings):
    settings.OPENFACE_RUN_MAX_PER_VISITOR = 1
    limits = Limits()

    assert [limits.take("me", 1), limits.take("me", 1), limits.take("you", 1)] == [None, "visitor", None]
    limits.give("me", 1)
    limits.give("you", 1)
    assert limits.under_way == 0
