"""A database that is away when a long stream's right is looked at again cuts nothing, and saves nobody for ever."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from jobs.models import Job
from runtime_proxy import handover, watch, websocket
from runtime_proxy.access import ANYBODY, Visitor
from runtime_proxy.close_codes import NO_LONGER_ADMITTED
from runtime_proxy.recent import Fresh
from tests.runtime_proxy.data_plane import DataPlane, until
from tests.runtime_proxy.test_websocket import App
from tests.runtime_proxy.test_websocket import app as app
from tests.runtime_proxy.upstreams import Asked, Upstream

RunSpace = Callable[..., Job]
SignIn = Callable[[User], str]


class Looks:
    """What stands in for the look at a visitor's session from now on."""

    def __init__(self) -> None:
        self.count = 0
        self.away = True

    def __call__(self, visitor: Visitor) -> Fresh[Visitor]:
        self.count += 1
        if self.away:
            raise OperationalError("the database is away")
        return Fresh(ANYBODY, 0)


@pytest.fixture
def alice(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> User:
    monkeypatch.setattr(handover, "RECHECK_SECONDS", 0.0)  # every look is a new one
    return User.objects.create_user("alice")


def test_a_websocket_outlives_the_outage_and_not_the_session(
    data_plane: DataPlane,
    run_space: RunSpace,
    app: App,
    alice: User,
    signed_in: SignIn,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(websocket, "RECHECK_SECONDS", 0.1)
    run_space(visibility="private", port=app.port)
    headers = {"Cookie": signed_in(alice), "Origin": f"http://{data_plane.host}"}

    with connect(f"ws://{data_plane.host}/run/alice/app/ws", additional_headers=headers, proxy=None) as client:
        looks = Looks()
        monkeypatch.setattr(handover, "recheck", looks)
        until(lambda: looks.count > 2)
        client.send("still there")
        assert client.recv(timeout=10) == "still there"

        looks.away = False
        with pytest.raises(ConnectionClosed) as closed:
            client.recv(timeout=10)

    assert closed.value.rcvd is not None and closed.value.rcvd.code == NO_LONGER_ADMITTED


def test_an_answer_outlives_the_outage_and_not_the_session(
    data_plane: DataPlane,
    run_space: RunSpace,
    upstream: Upstream,
    alice: User,
    signed_in: SignIn,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(watch, "RECHECK_SECONDS", 0.1)
    monkeypatch.setattr(watch, "ROUND_SECONDS", 0.1)

    async def for_ever(asked: Asked) -> None:
        await asked.answer(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ntick\r\n")
        await asked.reader.read(1)

    upstream.handler = for_ever
    run_space(visibility="private")
    head = f"GET /run/alice/app/ HTTP/1.1\r\nHost: {data_plane.host}\r\nCookie: {signed_in(alice)}\r\n\r\n"

    with data_plane.connect() as client:
        client.sendall(head.encode())
        assert client.recv(65536).startswith(b"HTTP/1.1 200 ")
        looks = Looks()
        monkeypatch.setattr(handover, "recheck", looks)
        until(lambda: looks.count > 2)
        assert upstream.open_connections == 1

        looks.away = False
        until(lambda: upstream.open_connections == 0)
