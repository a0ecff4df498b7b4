"""Ranges, pipelines, early answers and what else comes between a request and the end of its answer."""

from __future__ import annotations

import asyncio
import hashlib
import http.client
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from jobs.models import Job
from runtime_proxy.server import MAX_WAITING_BYTES
from tests.runtime_proxy.data_plane import DataPlane, until
from tests.runtime_proxy.upstreams import Asked, Upstream

RunSpace = Callable[..., Job]
FILE = bytes(range(256)) * 8
MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("asked_for", "said", "body"),
    [
        (
            {"Range": "bytes=10-19"},
            b"206 Partial Content\r\nContent-Range: bytes 10-19/2048\r\nContent-Length: 10",
            FILE[10:20],
        ),
        (
            {"Range": "bytes=0-0,-1", "If-Range": '"v1"'},
            b"206 Partial Content\r\nContent-Type: multipart/byteranges; boundary=x\r\nContent-Length: 3",
            b"--x",
        ),
        (
            {"Range": "bytes=9999-"},
            b"416 Range Not Satisfiable\r\nContent-Range: bytes */2048\r\nContent-Length: 0",
            b"",
        ),
        ({"If-None-Match": 'W/"v1"'}, b'304 Not Modified\r\nETag: W/"v1"\r\nVary: Accept', b""),
        ({"If-Match": "*"}, b"412 Precondition Failed\r\nContent-Length: 0", b""),
    ],
    ids=["one range", "two ranges", "none such", "not modified", "precondition"],
)
def test_a_part_of_a_file_is_that_part(
    data_plane: DataPlane,
    run_space: RunSpace,
    upstream: Upstream,
    asked_for: dict[str, str],
    said: bytes,
    body: bytes,
):
    run_space()
    upstream.handler = lambda asked: asked.answer(b"HTTP/1.1 " + said + b"\r\nAccept-Ranges: bytes\r\n\r\n" + body)

    answer = data_plane.get("/run/alice/app/file", **asked_for)  # type: ignore[arg-type]  # of headers only

    lines = [line.split(b": ") for line in said.split(b"\r\n")[1:]]
    assert (answer.status, answer.body) == (int(said[:3]), body)
    assert [answer.one(name.decode().lower()) for name, _ in lines] == [value.decode() for _, value in lines]
    assert {name: (upstream.seen[0].one(name.lower().encode()) or b"").decode() for name in asked_for} == asked_for


def test_requests_in_a_row_are_answered_in_their_order(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space()

    async def echo(asked: Asked) -> None:
        await asked.ok(asked.target + await asked.body())

    upstream.handler = echo
    requests = [
        b"GET /run/alice/app/1 HTTP/1.1\r\nHost: h\r\n\r\n",
        b"POST /run/alice/app/2 HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc",
        b"POST /run/alice/app/3 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nde\r\n0\r\n\r\n",
        b"GET /run/alice/app/4 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
    ]

    answers = data_plane.raw(b"".join(requests)).split(b"HTTP/1.1 200 OK\r\n")[1:]

    assert [answer.partition(b"\r\n\r\n")[2] for answer in answers] == [b"/1", b"/2abc", b"/3de", b"/4"]


async def for_ever(asked: Asked) -> None:
    """Answer nobody."""
    await asked.reader.read(1)


def test_a_visitor_who_leaves_with_requests_waiting_ends_the_one_under_way(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream
):
    run_space()
    upstream.handler = for_ever

    with data_plane.connect() as client:
        client.sendall(b"GET /run/alice/app/ HTTP/1.1\r\nHost: h\r\n\r\n" * 3)
        until(lambda: upstream.open_connections == 1)

    until(lambda: upstream.open_connections == 0)
    assert len(upstream.seen) == 1


def test_who_asks_on_and_on_without_an_answer_is_cut_off(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream
):
    run_space()
    upstream.handler = for_ever

    with data_plane.connect() as client, suppress(ConnectionError):
        request = b"GET /run/alice/app/ HTTP/1.1\r\nHost: h\r\n\r\n"
        client.sendall(request)
        until(lambda: upstream.open_connections == 1)
        client.sendall(request * (MAX_WAITING_BYTES // len(request) + 10))
        assert client.recv(4096) == b""

    until(lambda: upstream.open_connections == 0)
    assert len(upstream.seen) == 1


@pytest.mark.parametrize("closes", [True, False])
def test_an_answer_to_a_large_upload_arrives_before_its_end(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream, closes: bool
):
    """At clients that send all before they read, as most do; and of apps that close with most of it unread."""
    run_space()
    over = asyncio.Event()

    async def refuse(asked: Asked) -> None:
        await asked.answer(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig")
        if closes:
            asked.writer.close()
        else:
            await over.wait()

    upstream.handler = refuse

    with data_plane.connect() as client:
        client.sendall(b"POST /run/alice/app/ HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % (30 * MIB))
        for _ in range(30):
            client.sendall(bytes(MIB))
        answer = b""
        while not answer.endswith(b"big"):
            piece = client.recv(65536)
            assert piece, answer
            answer += piece

    assert answer.startswith(b"HTTP/1.1 413 ")


def test_trailers_of_an_answer_end_on_the_way(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space()
    upstream.handler = lambda asked: asked.answer(
        b"HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"3;ext=1\r\nabc\r\n0\r\nX-Sum: 1\r\nSet-Cookie: openface_session=x\r\n\r\n"
    )

    for _ in range(2):  # the connection serves once more
        raw = data_plane.raw(b"GET /run/alice/app/ HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        _, _, body = raw.partition(b"\r\n\r\n")
        assert body == b"3\r\nabc\r\n0\r\n\r\n"
        assert b"x-sum" not in raw.lower() and b"openface_session" not in raw


@pytest.mark.parametrize("coding", ["counted", "chunked"])
@pytest.mark.parametrize("pieces", [[b""], [b"a", b"bc"], [bytes(70_000), b"x"]], ids=["empty", "small", "large"])
def test_a_body_arrives_as_it_was_sent(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream, coding: str, pieces: list[bytes]
):
    run_space()
    digests = []

    async def keep(asked: Asked) -> None:
        digests.append(hashlib.sha256(await asked.body()).digest())
        await asked.ok()

    upstream.handler = keep
    connection = http.client.HTTPConnection("127.0.0.1", data_plane.port, timeout=10)
    whole = b"".join(pieces)

    if coding == "counted":
        connection.request("PUT", "/run/alice/app/", whole, {"Content-Length": str(len(whole))})
    else:
        connection.request("PUT", "/run/alice/app/", iter(pieces), encode_chunked=True)
    assert connection.getresponse().status == 200

    asked = upstream.seen[0]
    framing = (asked.one(b"content-length"), asked.one(b"transfer-encoding"))
    assert framing == ((b"%d" % len(whole), None) if coding == "counted" else (None, b"chunked"))
    assert digests == [hashlib.sha256(whole).digest()]
    connection.close()


def test_a_visitor_who_leaves_in_the_middle_of_an_upload_is_told_of(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream
):
    run_space()
    begun = threading.Event()

    async def read(asked: Asked) -> None:
        await asked.reader.readexactly(4)
        begun.set()
        await asked.body()

    upstream.handler = read

    with data_plane.connect() as client:
        client.sendall(b"POST /run/alice/app/ HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nhalf")
        assert begun.wait(10)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")  # a reset

    until(lambda: upstream.open_connections == 0)
