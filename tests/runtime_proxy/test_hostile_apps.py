"""An app that lies about where its answer ends harms nobody but itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from uuid import uuid4

import pytest

from jobs.models import Job
from runtime_proxy import routing
from runtime_proxy.client_http import Broken, Response
from runtime_proxy.headers import Mount
from runtime_proxy.upstream import GatewayFailed, UpstreamPool
from tests.runtime_proxy.data_plane import DataPlane, until
from tests.runtime_proxy.upstreams import Asked, Loop, Upstream

RunSpace = Callable[..., Job]
EVIL = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nEVIL!"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
LYING_ENDS = [b"0\r\nX: y\n\n", b"0\r\nX: y\r\n\n", b"0;x\n\n", b"0\n\n", b"0 ;\n\n"]


@pytest.mark.inside
@pytest.mark.parametrize("end", LYING_ENDS)
def test_what_an_app_leaves_on_a_connection_answers_nobody_else(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream, end: bytes
):
    loop = Loop()
    victim = Upstream(handler=lambda asked: asked.ok(b"mine"))
    loop.run(victim.start())
    worker = run_space("eve/evil").worker
    run_space("alice/app", worker=worker, port=victim.port)

    async def lie(asked: Asked) -> None:
        await asked.answer(CHUNKED + end)
        await asyncio.sleep(0.1)  # until the connection is idle, had the end been believed
        await asked.answer(EVIL)

    upstream.handler = lie

    with data_plane.connect() as client:
        client.sendall(b"GET /run/eve/evil/ HTTP/1.1\r\nHost: h\r\n\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 ")
        until(lambda: upstream.open_connections == 0)
        answers = [data_plane.get("/run/alice/app/") for _ in range(5)]

    assert [(answer.status, answer.body) for answer in answers] == [(200, b"mine")] * 5
    assert {asked.one(b"x-forwarded-prefix") for asked in victim.seen} == {b"/run/alice/app"}
    assert {asked.one(b"x-forwarded-prefix") for asked in upstream.seen} == {b"/run/eve/evil"}
    loop.run(victim.stop())
    loop.close()


class Pair:
    """A fake gateway that passes on what it should not, and two leases behind it."""

    def __init__(self, upstream: Upstream) -> None:
        self.first, self.second = (
            routing.Upstream(
                space_id=1,
                worker_id=uuid4(),
                worker_name="gpu1",
                lease_id=uuid4(),
                base=f"http://127.0.0.1:{upstream.port}/lease/{name}",
                token=token,
                mount=Mount(prefix=b"/run/a/b"),
            )
            for name, token in (("first", "aa" * 32), ("second", "bb" * 32))
        )


async def iter_pieces(response: Response) -> AsyncIterator[bytes]:
    while piece := await response.read():
        yield piece


def ask(pool: UpstreamPool, lease: routing.Upstream) -> Callable[[], Awaitable[bytes]]:
    async def whole() -> bytes:
        response = await pool.request("GET", lease, b"/", [(b"host", b"h")], None)
        try:
            return b"".join([piece async for piece in iter_pieces(response)])
        finally:
            response.close()

    return whole


def peers(upstream: Upstream) -> list[int]:
    return [asked.writer.get_extra_info("peername")[1] for asked in upstream.seen]


@pytest.mark.inside
def test_two_leases_share_no_connection(upstream: Upstream):
    pair = Pair(upstream)

    async def in_turns() -> None:
        pool = UpstreamPool()
        for lease in (pair.first, pair.second, pair.first, pair.second):
            assert await ask(pool, lease)() == b"ok"
        await pool.close()

    asyncio.run(in_turns())

    one, other, one_again, other_again = peers(upstream)
    assert one == one_again
    assert other == other_again
    assert one != other


@pytest.mark.inside
def test_what_comes_unasked_ends_a_connection(upstream: Upstream):
    pair = Pair(upstream)

    is_idle, has_come = threading.Event(), threading.Event()

    async def answer_twice(asked: Asked) -> None:
        await asked.ok(b"first")
        assert await asyncio.to_thread(is_idle.wait, 10)
        await asked.answer(EVIL)
        has_come.set()

    upstream.handler = answer_twice

    async def twice() -> list[bytes]:
        pool = UpstreamPool()
        bodies = []
        for _ in range(2):
            bodies.append(await ask(pool, pair.first)())
            is_idle.set()
            assert await asyncio.to_thread(has_come.wait, 10)
            await asyncio.sleep(0.1)  # for this loop to read what has come
        await pool.close()
        return bodies

    assert asyncio.run(twice()) == [b"first", b"first"]
    assert len(set(peers(upstream))) == 2


LONG = bytes(range(256)) * 1024  # 256 KiB, in several pieces
LONG_HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(LONG)


def asked_twice(lease: routing.Upstream) -> list[bytes]:
    """The bodies of two answers, one after the other."""

    async def twice() -> list[bytes]:
        pool = UpstreamPool()
        bodies = [await ask(pool, lease)() for _ in range(2)]
        await pool.close()
        return bodies

    return asyncio.run(twice())


@pytest.mark.inside
@pytest.mark.parametrize("pieces", [1, 3, 7])
def test_a_long_body_is_taken_to_its_last_byte_and_the_connection_used_again(upstream: Upstream, pieces: int):
    pair = Pair(upstream)

    async def answer(asked: Asked) -> None:
        size = len(LONG) // pieces
        await asked.answer(LONG_HEAD)
        for place in range(pieces):
            await asked.answer(LONG[place * size : (place + 1) * size if place + 1 < pieces else None])
            await asyncio.sleep(0.02)  # so that each is read by itself

    upstream.handler = answer

    assert asked_twice(pair.first) == [LONG, LONG]
    assert len(set(peers(upstream))) == 1


@pytest.mark.inside
def test_what_follows_a_long_body_is_neither_part_of_it_nor_the_next_answer(upstream: Upstream):
    pair = Pair(upstream)

    async def answer(asked: Asked) -> None:
        await asked.answer(LONG_HEAD)
        await asked.answer(LONG + EVIL)

    upstream.handler = answer

    assert asked_twice(pair.first) == [LONG, LONG]
    assert len(set(peers(upstream))) == 2


@pytest.mark.inside
def test_a_long_body_that_breaks_off_is_broken(upstream: Upstream):
    pair = Pair(upstream)

    async def answer(asked: Asked) -> None:
        await asked.answer(LONG_HEAD)
        await asked.answer(LONG[:-1])
        asked.writer.close()

    upstream.handler = answer

    async def read() -> None:
        pool = UpstreamPool()
        with pytest.raises(Broken):
            await ask(pool, pair.first)()
        await pool.close()

    asyncio.run(read())


@pytest.mark.inside
@pytest.mark.parametrize("end", LYING_ENDS)
def test_a_line_ends_with_both_characters(upstream: Upstream, end: bytes):
    pair = Pair(upstream)
    upstream.handler = lambda asked: asked.answer(CHUNKED + end)

    async def read() -> None:
        pool = UpstreamPool()
        with pytest.raises((Broken, GatewayFailed)):
            await ask(pool, pair.first)()
        upstream.handler = lambda asked: asked.ok(b"fresh")
        assert await ask(pool, pair.first)() == b"fresh"
        await pool.close()

    asyncio.run(read())

    assert len(set(peers(upstream))) == 2


@pytest.mark.inside
@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
        b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nX : y\r\nContent-Length: 2\r\n\r\nok",
    ],
)
def test_a_head_that_can_be_read_in_two_ways_is_not_read(upstream: Upstream, head: bytes):
    pair = Pair(upstream)
    upstream.handler = lambda asked: asked.answer(head)

    async def read() -> None:
        pool = UpstreamPool()
        with pytest.raises(GatewayFailed):
            await ask(pool, pair.first)()
        await pool.close()

    asyncio.run(read())


def test_a_header_that_is_no_text_arrives_byte_for_byte(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space()
    values = [b"\xff", b"a\xffz", "日本".encode(), b"\xe9t\xe9"]

    data_plane.raw(
        b"GET /run/alice/app/ HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
        + b"".join(b"X-Raw: %s\r\n" % value for value in values)
        + b"\r\n"
    )

    assert upstream.seen[0].all(b"x-raw") == values


@pytest.mark.parametrize("answer", [b"", b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: " + b"a" * 200_000 + b"\r\n\r\n"])
def test_an_app_that_answers_no_http_is_named_as_the_fault(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream, answer: bytes
):
    run_space()

    async def break_off(asked: Asked) -> None:
        await asked.answer(answer)
        asked.writer.close()

    upstream.handler = break_off

    got = data_plane.get("/run/alice/app/")

    assert got.status == 502
    assert b'"app_broke_off"' in got.body
