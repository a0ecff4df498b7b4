"""Nothing is collected on the way: bytes move as they come, in both directions, and an end is the end it was."""

from __future__ import annotations

import asyncio
import hashlib
import http.client
import socket
import threading
from collections.abc import Callable

import pytest

from jobs.models import Job
from tests.runtime_proxy.data_plane import DataPlane, settled, until
from tests.runtime_proxy.upstreams import Asked, Upstream, three_events

RunSpace = Callable[..., Job]
HEAD = b"POST /run/alice/app/up HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"


def test_the_first_byte_reaches_the_app_before_the_last_leaves_the_client(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream
):
    run_space()
    first_came = threading.Event()

    async def read_slowly(asked: Asked) -> None:
        assert await asked.reader.readexactly(5) == b"first"
        first_came.set()
        assert await asked.reader.readexactly(4) == b"last"
        await asked.ok()

    upstream.handler = read_slowly

    with data_plane.connect() as client:
        client.sendall(HEAD + b"Content-Length: 9\r\n\r\nfirst")
        assert first_came.wait(10)
        client.sendall(b"last")
        assert client.recv(4096).startswith(b"HTTP/1.1 200")


def test_each_chunk_is_out_before_the_next_is_written(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space()
    read_by_client = threading.Semaphore(0)
    upstream.handler = three_events(read_by_client)
    client = http.client.HTTPConnection("127.0.0.1", data_plane.port, timeout=10)
    client.request("GET", "/run/alice/app/events", headers={"Accept-Encoding": "gzip"})
    answer = client.getresponse()

    for number in range(3):
        assert answer.read1() == b"data: %d\n\n" % number
        read_by_client.release()

    assert (answer.read(), answer.getheader("x-accel-buffering")) == (b"", "no")
    client.close()


def test_a_large_upload_and_download_arrive_whole(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space()
    payload = bytes(range(256)) * 40_000  # 10 MB
    digests = []

    async def swap(asked: Asked) -> None:
        digests.append(hashlib.sha256(await asked.body()).digest())
        await asked.ok(payload)

    upstream.handler = swap

    answer = data_plane.get("/run/alice/app/", method="PUT", body=payload)

    assert answer.body == payload
    assert digests == [hashlib.sha256(payload).digest()]


def test_a_slow_reader_holds_the_app_back(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space()
    sent = 0
    piece = b"x" * 65536

    async def pour(asked: Asked) -> None:
        nonlocal sent
        await asked.answer(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (4000 * len(piece)))
        for _ in range(4000):
            await asked.answer(piece)
            sent += len(piece)

    upstream.handler = pour

    with data_plane.connect() as client:
        client.sendall(b"GET /run/alice/app/ HTTP/1.1\r\nHost: h\r\n\r\n")
        client.recv(1)
        held_at = settled(lambda: sent)
        assert held_at < 1600 * len(piece)  # what kernels and three buffers hold; not the whole 250 MiB
        while sent < 4000 * len(piece):  # and it goes on when the reader does
            assert client.recv(1 << 20)


def test_a_slow_app_holds_the_browser_back(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space()
    go_on = threading.Event()

    async def wait(asked: Asked) -> None:
        await asyncio.to_thread(go_on.wait, 20)
        while await asked.reader.read(1 << 20):
            pass

    upstream.handler = wait
    sent = 0

    def send(client: socket.socket) -> None:
        nonlocal sent
        piece = b"x" * 65536
        for _ in range(4000):
            client.sendall(piece)
            sent += len(piece)

    with data_plane.connect() as client:
        client.sendall(HEAD + b"Content-Length: 262144000\r\n\r\n")
        sender = threading.Thread(target=send, args=(client,))
        sender.start()
        held_at = settled(lambda: sent)
        go_on.set()
        sender.join(20)

    # Six sockets' buffers, which the kernel grows as it likes; a small part of the 4000 pieces.
    assert held_at < 1600 * 65536
    assert sent == 4000 * 65536


def test_an_early_answer_arrives(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space()
    upstream.handler = lambda asked: asked.answer(
        b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig"
    )

    with data_plane.connect() as client:
        client.sendall(HEAD + b"Content-Length: 1000000\r\n\r\nonly the beginning")
        answer = client.recv(4096)

    assert answer.startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("ending", ["chunked", "counted"])
def test_an_upstream_that_breaks_off_breaks_the_answer(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream, ending: str
):
    run_space()
    heads = {
        "chunked": b"Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        "counted": b"Content-Length: 8\r\n\r\nhalf",
    }

    async def break_off(asked: Asked) -> None:
        await asked.answer(b"HTTP/1.1 200 OK\r\n" + heads[ending])
        asked.writer.close()

    upstream.handler = break_off

    with pytest.raises(http.client.IncompleteRead) as broken:
        data_plane.get("/run/alice/app/")

    assert broken.value.partial == b"half"


def test_an_upstream_that_says_nothing_is_a_broken_gateway(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream
):
    run_space()

    async def hang_up(asked: Asked) -> None:
        await asked.body()
        asked.writer.close()

    upstream.handler = hang_up

    answer = data_plane.get("/run/alice/app/", method="PUT", body=b"x")

    assert answer.status == 502
    assert b"gpu1" in answer.body
    assert len(upstream.seen) == 1  # a body is never sent twice


@pytest.mark.parametrize("when", ["before the head", "in the middle"])
def test_an_upstream_learns_that_the_browser_has_gone(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream, when: str
):
    run_space()

    async def for_ever(asked: Asked) -> None:
        if when == "in the middle":
            await asked.answer(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ntick\r\n")
        assert await asked.reader.read(1) == b""  # until we are cut off

    upstream.handler = for_ever

    with data_plane.connect() as client:
        client.sendall(b"GET /run/alice/app/ HTTP/1.1\r\nHost: h\r\n\r\n")
        if when == "in the middle":
            assert client.recv(4096)
        until(lambda: upstream.open_connections == 1)

    until(lambda: upstream.open_connections == 0)


def test_an_upload_that_breaks_off_never_looks_complete(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space()
    ends = []

    async def read(asked: Asked) -> None:
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await asked.reader.readexactly(100)
        ends.append("broken")

    upstream.handler = read

    with data_plane.connect() as client:
        client.sendall(HEAD + b"Content-Length: 100\r\n\r\nhalf")
        until(lambda: upstream.open_connections == 1)

    until(lambda: ends == ["broken"])


def test_the_browser_is_told_to_go_on_when_the_app_says_so(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream
):
    run_space()

    async def go_on(asked: Asked) -> None:
        assert asked.one(b"expect") == b"100-continue"
        await asked.answer(b"HTTP/1.1 100 Continue\r\n\r\n")
        await asked.ok(await asked.body())

    upstream.handler = go_on

    with data_plane.connect() as client:
        client.sendall(HEAD + b"Expect: 100-continue\r\nContent-Length: 4\r\n\r\n")
        assert client.recv(4096).startswith(b"HTTP/1.1 100 Continue\r\n\r\n")
        client.sendall(b"body")
        answer = b""
        while piece := client.recv(4096):
            answer += piece

    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"body")


def test_a_refusal_to_expect_arrives_without_a_go_on(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space()
    upstream.handler = lambda asked: asked.answer(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")

    with data_plane.connect() as client:
        client.sendall(HEAD + b"Expect: 100-continue\r\nContent-Length: 4\r\n\r\n")
        answer = client.recv(4096)

    assert answer.startswith(b"HTTP/1.1 413 ")
    until(lambda: upstream.open_connections == 0)  # nobody knows whether the body still comes: not used again
