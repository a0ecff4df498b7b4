"""Requests that come without waiting for answers: each is read when those before it are answered, and none is lost."""

from __future__ import annotations

import asyncio
import gc
import re
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from jobs.models import Job
from runtime_proxy import server
from runtime_proxy.cycle import Cycle
from tests.runtime_proxy.data_plane import DataPlane, until
from tests.runtime_proxy.raw_sockets import HANDSHAKE, RawApp, closing, frame
from tests.runtime_proxy.raw_sockets import app as app
from tests.runtime_proxy.upstreams import Asked, Upstream

RunSpace = Callable[..., Job]
HANGING = b"GET /run/alice/app/hang HTTP/1.1\r\nHost: h\r\n\r\n"
SMALL = b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n"
LAST = b"GET /healthz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"


class Hanging:
    """Makes an app answer `/hang` only when it may, and everything else with what it was asked for."""

    def __init__(self, upstream: Upstream) -> None:
        self.may_go_on = threading.Event()
        upstream.handler = self.answer

    async def answer(self, asked: Asked) -> None:
        body = await asked.body()
        while asked.target.endswith(b"/hang") and not self.may_go_on.is_set():
            if asked.reader.exception() is not None or asked.reader.at_eof():
                return  # he left
            await asyncio.sleep(0.005)
        await asked.ok(asked.target + b" " + body)


@pytest.fixture
def hanging(upstream: Upstream) -> Iterator[Hanging]:
    hanging = Hanging(upstream)
    yield hanging
    hanging.may_go_on.set()


def all_of(client: socket.socket) -> bytes:
    heard = []
    while piece := client.recv(65536):
        heard.append(piece)
    return b"".join(heard)


def requests_in_hand() -> int:
    return sum(isinstance(one, Cycle) and not one.response_complete for one in gc.get_objects())


def test_what_comes_behind_a_request_is_not_read_before_its_answer(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream, hanging: Hanging
):
    run_space()
    before = requests_in_hand()

    with data_plane.connect() as client:
        client.sendall(HANGING + SMALL * 1500)
        until(lambda: len(upstream.seen) == 1)
        client.sendall(SMALL * 10 + LAST)
        assert data_plane.raw(LAST).startswith(b"HTTP/1.1 200 ")  # so that what was sent before has arrived
        assert requests_in_hand() - before == 1

        hanging.may_go_on.set()
        answers = all_of(client)

    assert answers.count(b"HTTP/1.1 200 ") == 1 + 1500 + 10 + 1
    assert answers.index(b"/hang") < answers.index(b"HTTP/1.1 200 ", 1)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50, 10_000])
def test_each_is_answered_in_its_turn_however_they_are_cut(
    data_plane: DataPlane, run_space: RunSpace, hanging: Hanging, size: int
):
    run_space()
    hanging.may_go_on.set()
    start = b"POST /run/alice/app/%d HTTP/1.1\r\nHost: h\r\n"
    chunked = b"Transfer-Encoding: chunked\r\n\r\n"
    said = b"".join(
        [
            b"\r\n" + HANGING,
            start % 1 + b"Content-Length: 9\r\n\r\n\r\n\r\nabcde",
            start % 2 + chunked + b"8\r\n\r\n\r\n0\r\n\r\r\n0\r\n\r\n",
            start % 3 + b"Content-Length: 0\r\n\r\n",
            start % 4 + chunked + b"0\r\nX-Late: 1\r\n\r\n",
            b"GET /run/alice/app/5 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
            b"GET /run/alice/app/never HTTP/1.1\r\nHost: h\r\n\r\n",
        ]
    )

    with data_plane.connect() as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(0, len(said), size):
            client.sendall(said[at : at + size])
        answers = all_of(client)

    bodies = re.findall(rb"\r\n\r\n(/\w+ (?:[^H]|H(?!TTP))*)", answers)
    assert bodies == [b"/hang ", b"/1 \r\n\r\nabcde", b"/2 \r\n\r\n0\r\n\r", b"/3 ", b"/4 ", b"/5 "]


def test_a_websocket_behind_a_request_opens_in_its_turn(
    data_plane: DataPlane, run_space: RunSpace, app: RawApp, upstream: Upstream, hanging: Hanging
):
    worker = run_space().worker
    run_space("bob/sockets", worker=worker, port=app.port)
    early = frame(1, b"early", masked=True)

    with data_plane.connect() as client:
        client.sendall(HANGING)
        until(lambda: len(upstream.seen) == 1)
        client.sendall(b"GET /run/bob/sockets/ HTTP/1.1\r\nHost: h\r\n" + HANDSHAKE + b"\r\n" + early)
        assert app.heads == []
        hanging.may_go_on.set()
        until(lambda: len(app.got) == len(early))
        app.say(closing(1000, masked=False))
        client.sendall(closing(1000, masked=True))
        answers = all_of(client)

    assert answers.index(b"/hang") < answers.index(b"HTTP/1.1 101 ")


def test_who_leaves_has_asked_for_nothing_more(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream, hanging: Hanging
):
    run_space()

    with data_plane.connect() as client:
        client.sendall(HANGING + HANGING)
        until(lambda: len(upstream.seen) == 1)
    until(lambda: upstream.open_connections == 0)
    hanging.may_go_on.set()

    assert data_plane.get("/run/alice/app/other").status == 200
    assert [asked.target for asked in upstream.seen] == [b"/hang", b"/other"]


def test_what_comes_in_one_piece_with_the_end_of_a_body_is_bounded(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream, hanging: Hanging
):
    run_space()
    before = requests_in_hand()

    with data_plane.connect() as client:
        client.sendall(HANGING.replace(b"GET", b"POST")[:-2] + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
        until(lambda: len(upstream.seen) == 1)
        client.sendall(b"0\r\n\r\n" + SMALL * 1000)
        with pytest.raises(ConnectionError):
            while client.recv(65536):
                pass
            raise ConnectionError  # it ended in order

    assert requests_in_hand() - before <= server.MOST_WAITING + 2
