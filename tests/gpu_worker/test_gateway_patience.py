"""The gateway keeps no connection for ever, and cuts none that still does something."""

from __future__ import annotations

import hashlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from gpu_worker import app_connections, caller
from gpu_worker.gateway import Gateway
from tests.gpu_worker.raw_apps import (
    HANDSHAKE,
    HANG_SECONDS,
    LEASE,
    TOKEN,
    UPGRADED,
    App,
    Serve,
    connect,
    echo_of_target,
    read_until,
    read_what_comes,
    request,
)
from tests.gpu_worker.worker import eventually

StartApp = Callable[[Serve], App]


def test_an_idle_connection_to_an_app_ends_after_a_while(
    gateway: Gateway, app: StartApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_connections, "REUSE_SECONDS", 0.1)
    upstream = app(echo_of_target)

    for _ in range(2):
        with connect(gateway) as client:
            client.sendall(request())
            read_until(client, b"\r\n\r\n/")
        ended = upstream.connections
        eventually(lambda ended=ended: upstream.ended == ended, what="the end of the idle connection")  # type: ignore[misc]
    assert upstream.connections == 2


@pytest.fixture
def short_patience(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(caller, "FIRST_HEAD_SECONDS", 0.2)
    monkeypatch.setattr(caller, "IDLE_SECONDS", 0.2)
    yield


@pytest.mark.usefixtures("short_patience")
@pytest.mark.parametrize("said", [b"", b"GET /healthz HT"])
def test_who_asks_nothing_is_not_waited_for(gateway: Gateway, said: bytes) -> None:
    with connect(gateway) as client, pytest.raises(ConnectionResetError):
        client.sendall(said)
        client.recv(1)


@pytest.mark.usefixtures("short_patience")
def test_who_asks_nothing_more_is_not_waited_for(gateway: Gateway, app: StartApp) -> None:
    app(echo_of_target)
    with connect(gateway) as client, pytest.raises(ConnectionResetError):
        client.sendall(request())
        read_until(client, b"\r\n\r\n/")
        client.recv(1)


@pytest.mark.usefixtures("short_patience")
def test_an_app_that_thinks_for_long_is_waited_for(gateway: Gateway, app: StartApp) -> None:
    asked, go = threading.Event(), threading.Event()

    def serve(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        asked.set()
        go.wait(HANG_SECONDS)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    app(serve)
    with connect(gateway) as client, connect(gateway) as other:
        client.sendall(request())
        assert asked.wait(HANG_SECONDS)
        with pytest.raises(ConnectionResetError):
            other.recv(1)  # its time, which began later, is over
        go.set()
        assert read_until(client, b"ok").endswith(b"ok")


def test_the_gateway_stops_with_connections_open(app: StartApp) -> None:
    def serve(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        connection.sendall(UPGRADED)
        read_what_comes(connection)

    upstream = app(serve)
    lone = Gateway("127.0.0.1", 0)
    lone.start()
    lone.open(LEASE, upstream.address, hashlib.sha256(TOKEN.encode()).hexdigest())
    with connect(lone) as idle, connect(lone) as busy:
        busy.sendall(HANDSHAKE)
        read_until(busy, b"\r\n\r\n")
        lone.stop()
        for client in (idle, busy):
            with pytest.raises(ConnectionResetError):
                client.recv(1)
    eventually(lambda: upstream.ended == 1, what="the end of the connection to the app")
