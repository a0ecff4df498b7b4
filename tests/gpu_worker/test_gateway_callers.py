"""How many callers the gateway has at a time: visitors of one app leave room for others, and for the worker itself."""

from __future__ import annotations

import hashlib
import resource
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from gpu_worker import gateway as gateways
from gpu_worker.gateway import Gateway
from tests.gpu_worker.raw_apps import LEASE, TOKEN, App, Serve, connect, read_until, request
from tests.gpu_worker.worker import eventually

StartApp = Callable[[Serve], App]
OTHER_LEASE = str(uuid.UUID(int=9))


@pytest.fixture
def waiting() -> Iterator[Serve]:
    """Answers nobody before the test is over."""
    over = threading.Event()

    def serve(connection: socket.socket) -> None:
        over.wait()

    yield serve
    over.set()


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    gateway = Gateway("127.0.0.1", 0, max_callers_per_app=3)
    gateway.start()
    yield gateway
    gateway.stop()


def test_visitors_of_one_app_leave_room_for_those_of_another(gateway: Gateway, app: StartApp, waiting: Serve) -> None:
    busy = app(waiting)
    gateway.open(OTHER_LEASE, busy.address, hashlib.sha256(TOKEN.encode()).hexdigest())

    with ExitStack() as open_:
        for _ in range(3):
            open_.enter_context(connect(gateway)).sendall(request())
        eventually(lambda: busy.connections == 3)
        one_more = open_.enter_context(connect(gateway))
        one_more.sendall(request())
        refused = read_until(one_more, b"\r\n\r\n")
        open_.enter_context(connect(gateway)).sendall(request().replace(LEASE.encode(), OTHER_LEASE.encode()))
        eventually(lambda: busy.connections == 4)

    assert refused.startswith(b"HTTP/1.1 503 ")
    assert b"X-OpenFace-Gateway: too-many-callers" in refused


def test_who_left_makes_room(gateway: Gateway, app: StartApp, waiting: Serve) -> None:
    busy = app(waiting)

    for number in range(1, 9):
        with connect(gateway) as client:
            client.sendall(request())
            eventually(lambda number=number: busy.connections == number)  # type: ignore[misc]


def test_callers_never_take_the_files_that_the_worker_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (gateways.OTHER_FILES + 80, before[1]))
    try:
        gateway = Gateway("127.0.0.1", 0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    gateway.start()
    try:
        with ExitStack() as open_:
            served = [open_.enter_context(connect(gateway)) for _ in range(40)]
            for client in served:
                client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                assert read_until(client, b"\r\n\r\n").startswith(b"HTTP/1.1 404 ")
            one_more = open_.enter_context(connect(gateway))
            with pytest.raises(ConnectionResetError):
                one_more.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                one_more.recv(1)
            served[0].close()

            def served_again() -> bool:
                with connect(gateway) as client:
                    try:
                        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                        return client.recv(4) == b"HTTP"
                    except ConnectionError:
                        return False

            eventually(served_again)
    finally:
        gateway.stop()
