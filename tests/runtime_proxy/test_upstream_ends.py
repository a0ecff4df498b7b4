"""How an exchange with an app ends: as what it was, in time, and without harming the next one."""

from __future__ import annotations

import asyncio
import http.client
import socket
import struct
import threading
from collections.abc import Callable

import pytest

from jobs.models import Job
from runtime_proxy import upstream as upstream_pool
from tests.runtime_proxy.data_plane import DataPlane, until
from tests.runtime_proxy.upstreams import Asked, Upstream

RunSpace = Callable[..., Job]
UPLOAD = b"POST /run/alice/app/ HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n"
IDLE_SECONDS = 0.5


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A data plane that gives up after half a second in which nothing moves."""
    monkeypatch.setattr(upstream_pool, "IDLE_SECONDS", IDLE_SECONDS)
    monkeypatch.setattr(upstream_pool, "LOOK_SECONDS", 0.1)


def reset(asked: Asked) -> None:
    """End the app's connection by a reset, as a killed process with unread bytes does."""
    sock: socket.socket = asked.writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    asked.writer.transport.abort()


def test_an_answer_without_a_length_is_complete_only_when_the_app_says_so(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream
):
    run_space()

    async def half(asked: Asked) -> None:
        await asked.answer(b"HTTP/1.1 200 OK\r\n\r\nhalf")
        if asked.target == b"/reset":
            read_by_client.wait(10)
            reset(asked)
        else:
            asked.writer.close()

    upstream.handler = half
    read_by_client = threading.Event()

    assert data_plane.get("/run/alice/app/closed").body == b"half"

    client = http.client.HTTPConnection("127.0.0.1", data_plane.port, timeout=10)
    client.request("GET", "/run/alice/app/reset")
    answer = client.getresponse()
    assert answer.read1() == b"half"
    read_by_client.set()
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        answer.read()
    client.close()


def test_an_app_that_does_not_know_expect_gets_its_body_after_a_moment(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream
):
    run_space()

    async def echo(asked: Asked) -> None:
        await asked.ok(await asked.body())

    upstream.handler = echo

    with data_plane.connect() as client:
        client.sendall(UPLOAD + b"Connection: close\r\nExpect: 100-continue\r\n\r\n")
        assert client.recv(4096).startswith(b"HTTP/1.1 100 ")
        client.sendall(b"body")
        answer = b""
        while piece := client.recv(4096):
            answer += piece

    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"body")


def test_hundreds_of_header_lines_pass(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space()
    cookies = [b"Set-Cookie: c%d=%d; Path=/run/alice/app/" % (number, number) for number in range(500)]
    upstream.handler = lambda asked: asked.ok(b"ok", *cookies)

    raw = data_plane.raw(b"GET /run/alice/app/ HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")

    assert [line for line in raw.split(b"\r\n") if line.startswith(b"set-cookie")] == [
        cookie.replace(b"Set-Cookie", b"set-cookie") for cookie in cookies
    ]


@pytest.mark.usefixtures("impatient")
def test_an_upload_that_stands_still_is_ended(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space()

    async def read(asked: Asked) -> None:
        with pytest.raises(asyncio.IncompleteReadError):
            await asked.reader.readexactly(4)

    upstream.handler = read

    with data_plane.connect() as client:
        client.sendall(UPLOAD + b"\r\nha")
        assert client.recv(4096).startswith(b"HTTP/1.1 504 ")

    until(lambda: upstream.open_connections == 0)


@pytest.mark.usefixtures("impatient")
def test_an_answer_that_stands_still_is_ended_as_broken(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space()

    async def stall(asked: Asked) -> None:
        await asked.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf")
        assert await asked.reader.read(1) == b""

    upstream.handler = stall

    with pytest.raises(http.client.IncompleteRead):
        data_plane.get("/run/alice/app/")

    until(lambda: upstream.open_connections == 0)


@pytest.mark.usefixtures("impatient")
def test_a_slow_exchange_is_not_a_silent_one(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space()
    pieces = 6

    async def tick(asked: Asked) -> None:
        await asked.answer(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % pieces)
        for _ in range(pieces):
            await asked.answer(b".")
            await asyncio.sleep(IDLE_SECONDS / 2)  # the time is the matter here

    upstream.handler = tick

    assert data_plane.get("/run/alice/app/").body == b"." * pieces


def test_a_head_request_leaves_the_connection_usable(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space()

    async def answer(asked: Asked) -> None:
        if asked.line.startswith(b"HEAD"):
            await asked.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n")
        else:
            await asked.ok(b"whole")

    upstream.handler = answer

    for _ in range(3):
        assert data_plane.get("/run/alice/app/", method="HEAD").one("content-length") == "1234"
        assert data_plane.get("/run/alice/app/").body == b"whole"


@pytest.mark.parametrize("status", [100, 102, 103])
def test_what_is_said_before_the_answer_is_not_the_answer(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream, status: int
):
    run_space()

    async def hint(asked: Asked) -> None:
        await asked.answer(b"HTTP/1.1 %d Early\r\nLink: </style.css>\r\n\r\n" % status)
        await asked.ok(b"whole")

    upstream.handler = hint

    answer = data_plane.get("/run/alice/app/")

    assert (answer.status, answer.body, answer.one("link")) == (200, b"whole", None)
