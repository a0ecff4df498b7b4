"""Requests that no browser sends are refused at once, before an app or a query is asked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User

from jobs.models import Job
from runtime_proxy import server
from runtime_proxy.request_heads import MAX_FIELDS, MAX_HEAD_BYTES
from tests.runtime_proxy.data_plane import DataPlane, until
from tests.runtime_proxy.upstreams import Asked, Upstream

RunSpace = Callable[..., Job]
START = b"GET /run/alice/app/ HTTP/1.1\r\nHost: h\r\n"
HANDSHAKE = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
)


@pytest.mark.parametrize(
    "head",
    [
        START + b"X: " + b"a" * 70_000 + b"\r\n\r\n",
        START + b"".join(b"X-%d: %s\r\n" % (number, b"a" * 100) for number in range(700)) + b"\r\n",
        START + b"a" * 70_000 + b": b\r\n\r\n",
        b"GET /run/alice/app/" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: h\r\n\r\n",
    ],
    ids=["one value", "many fields", "a name", "the target"],
)
def test_a_head_beyond_the_limit_is_refused(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream, head: bytes
):
    run_space()

    assert data_plane.raw(head).startswith(b"HTTP/1.1 431 ")
    assert not upstream.seen


FIELDS = b"".join(b"A%d:\r\n" % number for number in range(MAX_FIELDS - 1))


@pytest.mark.parametrize("end", [b"", b"\r\n"], ids=["no end", "complete"])
def test_a_head_of_very_many_fields_is_refused(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream, end: bytes
):
    run_space()

    assert data_plane.raw(START + FIELDS + b"One: 1\r\nAnother: 1\r\n" + end).startswith(b"HTTP/1.1 431 ")
    assert not upstream.seen


def test_a_head_of_many_fields_arrives(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space()

    with data_plane.connect() as client:
        client.sendall(START + FIELDS + b"\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 200 ")
    assert upstream.seen[0].one(b"a%d" % (MAX_FIELDS - 2)) == b""


def test_very_many_trailers_end_a_request(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space()

    async def wait_for_the_body(asked: Asked) -> None:
        await asked.body()

    upstream.handler = wait_for_the_body
    answer = data_plane.raw(START + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + FIELDS * 2)

    assert not answer.startswith(b"HTTP/1.1 200 ")
    until(lambda: upstream.open_connections == 0)


@pytest.mark.parametrize("host", [b"a/b", b"a?b", b"a#b", b"u@a", b'a"b', b"a b", b"a\\b", b"a<b", b"\xc3\xa4"])
def test_what_no_host_is_called_is_refused(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream, host: bytes):
    run_space()

    answer = data_plane.raw(b"GET /run/alice/app/ HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert not upstream.seen


@pytest.mark.parametrize("host", [b"h", b"a_b.example:80", b"[::1]:8091", b"192.0.2.1:", b"xn--hxajbheg.example."])
def test_what_a_host_may_be_called_arrives(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream, host: bytes):
    run_space()

    answer = data_plane.raw(b"GET /run/alice/app/ HTTP/1.1\r\nConnection: close\r\nHost: " + host + b"\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 200 ")
    assert upstream.seen[0].one(b"host") == host


def test_a_client_of_http_1_0_is_not_told_to_go_on(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space()
    bodies = upstream.keep_bodies(b"there")
    head = b"POST /run/alice/app/ HTTP/1.0\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"

    answer = data_plane.raw(head + b"hello")

    assert bodies == [b"hello"]
    assert answer.count(b"HTTP/1.") == 1


def test_a_head_within_the_limit_arrives(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space()
    value = b"a" * (MAX_HEAD_BYTES - 200)

    answer = data_plane.raw(START + b"Connection: close\r\nX: " + value + b"\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 200 ")
    assert upstream.seen[0].one(b"x") == value


@pytest.mark.parametrize(
    "start",
    [
        START + b"X: ",
        START + b"Transfer-Encoding: chunked\r\n\r\n1;",
        START + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: ",
        START + b"Transfer-Encoding: chunked\r\n\r\n0\r\n",
    ],
    ids=["a header", "a chunk's extension", "a trailer", "trailers"],
)
def test_what_never_ends_is_cut_off(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream, start: bytes):
    run_space()

    async def wait_for_the_body(asked: Asked) -> None:
        await asked.body()

    upstream.handler = wait_for_the_body
    piece = b"X: aaaaaaaa\r\n" * 5000 if start.endswith(b"0\r\n") else b"a" * 65536
    sent = 0

    with data_plane.connect() as client, pytest.raises(ConnectionError):
        client.sendall(start)
        while sent < 64 * 1024 * 1024:
            client.sendall(piece)
            sent += len(piece)

    assert sent < 64 * 1024 * 1024


def test_a_long_body_is_no_head(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space()
    got = []

    async def keep(asked: Asked) -> None:
        got.append(len(await asked.body()))
        await asked.ok()

    upstream.handler = keep

    assert data_plane.get("/run/alice/app/", method="POST", body=b"x" * 1_000_000).status == 200
    chunks = b"".join(b"1\r\nx\r\n" for _ in range(100_000))
    raw = data_plane.raw(
        b"POST /run/alice/app/ HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        + chunks
        + b"0\r\n\r\n"
    )
    assert raw.startswith(b"HTTP/1.1 200 ")
    assert got == [1_000_000, 100_000]


@pytest.mark.parametrize("hosts", [b"", b"Host: h\r\nHost: other\r\n", b"Host: h\r\nHost: h\r\n"])
def test_one_host_is_named(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream, hosts: bytes):
    run_space()

    answer = data_plane.raw(b"GET /run/alice/app/ HTTP/1.1\r\n" + hosts + b"\r\n")

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert not upstream.seen


@pytest.mark.parametrize("body", [b"\r\n", b"Content-Length: 2\r\n\r\nhi", b"Content-Length: 9\r\n\r\nhi"])
def test_a_websocket_is_opened_by_get(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream, body: bytes):
    run_space()

    answer = data_plane.raw(b"POST /run/alice/app/ HTTP/1.1\r\nHost: h\r\n" + HANDSHAKE + body)

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert not upstream.seen


@pytest.mark.parametrize(
    ("request_line", "coding", "status"),
    [
        (b"POST /run/alice/app/ HTTP/1.1", b"gzip, chunked", 501),
        (b"POST /run/alice/app/ HTTP/1.1", b"chunked\r\nTransfer-Encoding: chunked", 400),
        (b"POST /run/alice/app/ HTTP/1.1", b"gzip", 501),
        (b"POST /run/alice/app/ HTTP/1.0", b"chunked", 400),
        (b"POST /run/alice/app/ HTTP/2.0", b"chunked", 505),
        (b"GET /run/alice/app/ HTTP/1.2", b"", 400),
    ],
)
def test_only_plain_framing_is_taken(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream, request_line: bytes, coding: bytes, status: int
):
    run_space()
    framing = b"Transfer-Encoding: " + coding + b"\r\n" if coding else b""

    answer = data_plane.raw(request_line + b"\r\nHost: h\r\n" + framing + b"\r\n2\r\nhi\r\n0\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert not upstream.seen


@pytest.mark.parametrize(
    ("start", "answer"),
    [(b"", b""), (b"\r\n", b""), (b"GET /run/al", b"HTTP/1.1 408 "), (START + b"X: y\r\n", b"HTTP/1.1 408 ")],
    ids=["nothing", "an empty line", "half a line", "no end"],
)
def test_a_head_comes_in_time(data_plane: DataPlane, monkeypatch: pytest.MonkeyPatch, start: bytes, answer: bytes):
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.2)

    got = data_plane.raw(start)

    assert got[: len(b"HTTP/1.1 408 ")] == answer


def test_what_is_being_answered_is_not_cut_by_a_late_head(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.1)
    run_space()

    async def answer_late(asked: Asked) -> None:
        await asyncio.sleep(0.3)
        await asked.ok(b"there")

    upstream.handler = answer_late

    assert b"there" in data_plane.raw(START + b"\r\nGET /run")


@pytest.mark.parametrize(
    ("framing", "body"),
    [
        (b"", b""),
        (b"Content-Length: 5\r\n", b"hello"),
        (b"Transfer-Encoding: chunked\r\n", b"2\r\nhe\r\n3\r\nllo\r\n0\r\nX-Late: 1\r\n\r\n"),
    ],
    ids=["no body", "counted", "chunked"],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_an_upgrade_that_we_do_not_speak_is_passed_over(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream, framing: bytes, body: bytes, at_once: bool
):
    """As Java's client asks at first, for HTTP/2."""
    run_space()
    bodies = upstream.keep_bodies()
    head = b"POST /run/alice/app/ HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    head += b"HTTP2-Settings: AAEA\r\n" + framing + b"\r\n"

    with data_plane.connect() as client:
        if at_once:
            client.sendall(head + body)
        else:
            client.sendall(head)
            until(lambda: len(upstream.seen) == 1)
            for byte in body:
                client.sendall(bytes((byte,)))
        answer = client.recv(65536)

    assert answer.startswith(b"HTTP/1.1 200 ")
    assert bodies == [b"hello" if framing else b""]
    assert not {b"upgrade", b"http2-settings", b"x-late"} & {name.lower() for name, _ in upstream.seen[0].headers}


@pytest.mark.parametrize(
    "trailer",
    [
        b"Cookie: a=1",
        b"Authorization: Bearer x",
        b"X-Forwarded-For: 6.6.6.6",
        b"Connection: accept",
        b"Host: elsewhere",
        b"Expect: 100-continue",
        b"X-Checksum: 1",
    ],
)
def test_what_comes_after_a_body_is_no_header(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream, trailer: bytes
):
    run_space()
    bodies = upstream.keep_bodies()
    request = b"POST /run/alice/app/ HTTP/1.1\r\nHost: h\r\nAccept: x\r\nTransfer-Encoding: chunked\r\n%s\r\n"
    for ending in (b"", trailer + b"\r\n"):
        data_plane.raw(request % b"Connection: close\r\n" + b"5\r\nhello\r\n0\r\n" + ending + b"\r\n")

    assert bodies == [b"hello", b"hello"]
    without, with_trailer = (asked.headers for asked in upstream.seen)
    assert with_trailer == without


@pytest.mark.parametrize("trailer", [b"Content-Length: 3", b"Transfer-Encoding: gzip"])
def test_a_trailer_that_would_frame_the_body_ends_it_broken(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream, trailer: bytes
):
    run_space()
    bodies = upstream.keep_bodies()

    answer = data_plane.raw(START + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n" + trailer + b"\r\n\r\n")

    assert not answer.startswith(b"HTTP/1.1 200 ")
    until(lambda: upstream.open_connections == 0)
    assert bodies == []


def test_a_session_in_a_trailer_opens_nothing(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream, signed_in: Callable[[User], str]
):
    run_space(visibility="private")
    cookie = b"Cookie: " + signed_in(User.objects.create_user("alice")).encode() + b"\r\n"
    request = b"POST /run/alice/app/ HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n"

    answer = data_plane.raw(request + b"\r\n0\r\n" + cookie + b"\r\n")

    assert answer.startswith(b"HTTP/1.1 401 ")
    assert not upstream.seen


def test_a_handover_with_too_many_fields_is_refused(data_plane: DataPlane):
    fields = "&".join(f"a{number}=1" for number in range(21))

    assert data_plane.get(f"/run-handover/?{fields}").status == 400


def test_an_app_that_breaks_off_is_logged_once(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream, caplog: pytest.LogCaptureFixture
):
    run_space()

    async def break_off(asked: Asked) -> None:
        await asked.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
        asked.writer.close()

    upstream.handler = break_off

    with caplog.at_level(logging.INFO):
        assert data_plane.raw(START + b"\r\n").endswith(b"half")

    assert [record.getMessage() for record in caplog.records if record.name != "gpu_worker"].count(
        "upstream broke off"
    ) == 1
    assert not [record for record in caplog.records if record.name == "uvicorn.error"]
