"""A client of HTTP/1.0 knows no chunks: it gets bytes as they come, and the connection's end for theirs."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from jobs.models import Job
from tests.runtime_proxy.data_plane import DataPlane, until
from tests.runtime_proxy.upstreams import Asked, Upstream

RunSpace = Callable[..., Job]
REQUEST = b"GET /run/alice/app/ HTTP/1.0\r\nHost: h\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("more", [b"", b"Connection: keep-alive\r\n"])
def test_an_answer_without_a_length_ends_with_the_connection(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream, more: bytes
):
    run_space()
    upstream.handler = lambda asked: asked.answer(CHUNKED + b"3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n")

    head, _, body = data_plane.raw(REQUEST + more + b"\r\n").partition(b"\r\n\r\n")

    assert body == b"abcdefg"
    assert b"content-length" not in head.lower()
    assert b"transfer-encoding" not in head.lower()
    assert b"connection: close" in head.lower()


def test_an_answer_with_a_length_keeps_it(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space()
    upstream.handler = lambda asked: asked.ok(b"abc")

    head, _, body = data_plane.raw(REQUEST + b"\r\n").partition(b"\r\n\r\n")

    assert body == b"abc"
    assert b"content-length: 3" in head.lower()


def test_each_piece_arrives_before_the_next_is_sent(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space()
    go_on = threading.Event()

    async def speak(asked: Asked) -> None:
        await asked.answer(CHUNKED + b"3\r\nabc\r\n")
        while not go_on.is_set() and not asked.reader.at_eof():
            await asked.reader.read(1)

    upstream.handler = speak

    with data_plane.connect() as client:
        client.sendall(REQUEST + b"\r\n")
        got = b""
        while not got.endswith(b"\r\n\r\nabc"):
            piece = client.recv(4096)
            assert piece, got
            got += piece
    go_on.set()
    until(lambda: upstream.open_connections == 0)


def test_an_answer_that_breaks_off_is_not_taken_for_whole(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream
):
    run_space()

    async def break_off(asked: Asked) -> None:
        await asked.answer(CHUNKED + b"3\r\nabc\r\n")
        asked.writer.close()

    upstream.handler = break_off

    with data_plane.connect() as client, pytest.raises(ConnectionResetError):
        client.sendall(REQUEST + b"\r\n")
        while client.recv(4096):
            pass
