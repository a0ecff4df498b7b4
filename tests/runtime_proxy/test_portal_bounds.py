"""One client, however much it sends or leaves unread, costs the control plane little memory and no disk."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from jobs.models import Job
from runtime_proxy.portal_websocket import LIMITS
from tests.runtime_proxy.data_plane import DEADLINE, settled, until
from tests.runtime_proxy.test_websocket import App, app
from tests.spaces.pages.server import Portal, serve

RunSpace = Callable[..., Job]
MIB = 1024 * 1024
MESSAGE = 256 * 1024
MESSAGES = 1024  # 256 MiB
# What sockets, buffers and libraries of three hops hold at most, in messages: sockets grow to several MiB each.
ON_THE_WAY = 512

__all__ = ["app"]  # a fixture


@pytest.fixture
def portal(transactional_db: None, postgres_url: str, tmp_path: Path) -> Iterator[Portal]:
    """One for each test: it remembers for a minute where a Space runs."""
    yield from serve(postgres_url, tmp_path)


@pytest.fixture(scope="module")
def lasting_portal(
    django_db_setup: None, postgres_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Portal]:
    yield from serve(postgres_url, tmp_path_factory.mktemp("portal"))


def opened(portal: Portal) -> ClientConnection:
    address = f"ws://127.0.0.1:{portal.port}/run/alice/app/ws"
    return connect(address, origin=Origin(portal.url), proxy=None, compression=None, max_queue=1, ping_interval=None)


def numbered(number: int) -> bytes:
    return number.to_bytes(4, "big") * (MESSAGE // 4)


def test_an_app_waits_for_a_client_that_does_not_read(portal: Portal, run_space: RunSpace, app: App):
    run_space(port=app.port)
    sent = 0

    async def flood(connection: ServerConnection) -> None:
        nonlocal sent
        for number in range(MESSAGES):
            await connection.send(numbered(number))
            sent += 1

    app.handle = flood
    with opened(portal) as client:
        until(lambda: sent)
        held = settled(lambda: sent)
        received = [client.recv(timeout=20) for _ in range(MESSAGES)]

    assert held < ON_THE_WAY
    assert received == [numbered(number) for number in range(MESSAGES)]


def test_a_client_waits_for_an_app_that_does_not_read(portal: Portal, run_space: RunSpace, app: App):
    run_space(port=app.port)
    received: list[object] = []
    reads = threading.Event()
    sent = 0

    async def late(connection: ServerConnection) -> None:
        await asyncio.to_thread(reads.wait)
        async for message in connection:
            received.append(message)

    def flood(client: ClientConnection) -> None:
        nonlocal sent
        for number in range(MESSAGES):
            client.send(numbered(number))
            sent += 1

    app.handle = late
    try:
        with opened(portal) as client, ThreadPoolExecutor() as beside:
            flooding = beside.submit(flood, client)
            until(lambda: sent)
            held = settled(lambda: sent)
            reads.set()
            flooding.result(DEADLINE)
            until(lambda: len(received) == MESSAGES)
    finally:
        reads.set()

    assert held < ON_THE_WAY
    assert received == [numbered(number) for number in range(MESSAGES)]


def test_few_are_open_at_once(portal: Portal, run_space: RunSpace, app: App):
    run_space(port=app.port)
    with ExitStack() as clients:
        first = clients.enter_context(opened(portal))
        for _ in range(LIMITS.per_visitor - 1):
            clients.enter_context(opened(portal))
        with pytest.raises(InvalidStatus):
            clients.enter_context(opened(portal))
        first.close()

        def again() -> bool:
            try:
                clients.enter_context(opened(portal))
            except InvalidStatus:
                return False
            return True

        until(again)


def test_it_may_open_as_many_files_as_the_system_allows(lasting_portal: Portal):
    soft, hard = resource.prlimit(lasting_portal.pid, resource.RLIMIT_NOFILE)

    assert soft == hard


class TestBodies:
    """daphne takes a body before the application hears of the request."""

    def test_a_body_that_no_path_takes_is_not_kept(self, lasting_portal: Portal):
        with socket.create_connection(("127.0.0.1", lasting_portal.port), timeout=60) as upload:
            host = f"127.0.0.1:{lasting_portal.port}"
            head = f"POST /run/alice/app/up HTTP/1.1\r\nHost: {host}\r\nContent-Length: {64 * MIB}\r\n\r\n"
            upload.sendall(head.encode())
            for _ in range(63):
                upload.sendall(b"x" * MIB)

            kept = files_without_a_name(lasting_portal.pid)
            upload.sendall(b"x" * MIB)
            status = upload.recv(200).split(b" ")[1]

        assert kept < 2 * MIB
        assert status == b"401"  # there is no such Space, as for a private one

    @pytest.mark.parametrize("chunked", [False, True])
    def test_it_is_refused_where_bodies_have_a_limit(self, lasting_portal: Portal, chunked: bool):
        piece, pieces = b"x" * MIB, 3
        framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {pieces * MIB}"
        with socket.create_connection(("127.0.0.1", lasting_portal.port), timeout=60) as upload:
            upload.sendall(
                f"POST /login/ HTTP/1.1\r\nHost: 127.0.0.1:{lasting_portal.port}\r\n{framing}\r\n\r\n".encode()
            )
            for _ in range(pieces):
                upload.sendall(b"%x\r\n%b\r\n" % (MIB, piece) if chunked else piece)
            upload.sendall(b"0\r\n\r\n" if chunked else b"")
            status = upload.recv(200).split(b" ")[1]

        assert status == b"413"


def files_without_a_name(pid: int) -> int:
    """The bytes of all files that a process has open and that lie in no directory."""
    total = 0
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if os.readlink(entry).endswith("(deleted)"):
                total += entry.stat().st_size
        except OSError:
            continue
    return total
