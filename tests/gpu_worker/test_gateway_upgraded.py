"""How an upgraded connection through the gateway ends: as either side ended it."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable

import pytest

from gpu_worker import upgraded
from gpu_worker.gateway import Gateway
from tests.gpu_worker.raw_apps import (
    HANDSHAKE,
    HANG_SECONDS,
    UPGRADED,
    App,
    Serve,
    connect,
    read_all,
    read_until,
    read_what_comes,
    reset,
    standing_still,
)
from tests.gpu_worker.worker import eventually

StartApp = Callable[[Serve], App]


def test_an_app_that_ended_its_direction_still_reads_an_upgraded_connection(gateway: Gateway, app: StartApp) -> None:
    heard: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        connection.sendall(UPGRADED + b"last words")
        connection.shutdown(socket.SHUT_WR)
        heard.append(read_all(connection))

    app(serve)
    with connect(gateway) as client:
        client.sendall(HANDSHAKE)
        assert read_all(client) == UPGRADED + b"last words"
        client.sendall(b"an answer")
        client.shutdown(socket.SHUT_WR)
        eventually(lambda: heard == [b"an answer"], what="the app's reading")


def test_a_side_that_never_ends_is_not_waited_for(
    gateway: Gateway, app: StartApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgraded, "LINGER_SECONDS", 0.05)

    def serve(connection: socket.socket) -> None:
        connection.settimeout(None)
        read_until(connection, b"\r\n\r\n")
        connection.sendall(UPGRADED)
        assert read_all(connection) == b""
        connection.shutdown(socket.SHUT_RD)
        while True:  # until the gateway breaks the connection
            connection.sendall(b"on and on")
            threading.Event().wait(0.01)

    upstream = app(serve)
    with connect(gateway) as client:
        client.sendall(HANDSHAKE)
        read_until(client, b"\r\n\r\n")
        client.shutdown(socket.SHUT_WR)
        read_what_comes(client)
    eventually(lambda: upstream.ended == 1, what="the end of the app's connection")


@pytest.mark.parametrize("who", ["client", "app"])
def test_a_break_of_one_side_of_an_upgraded_connection_breaks_the_other(
    gateway: Gateway, app: StartApp, who: str
) -> None:
    seen, broken = threading.Event(), []

    def serve(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        connection.sendall(UPGRADED)
        seen.wait(HANG_SECONDS)
        if who == "app":
            reset(connection)
        else:
            with pytest.raises(ConnectionResetError):
                connection.recv(1)
            broken.append(who)

    app(serve)
    with connect(gateway) as client:
        client.sendall(HANDSHAKE)
        read_until(client, b"\r\n\r\n")
        seen.set()
        if who == "client":
            reset(client)
            eventually(lambda: broken == ["client"], what="the reset at the app")
        else:
            with pytest.raises(ConnectionResetError):
                client.recv(1)


def test_a_side_that_ends_when_the_other_is_just_gone_is_no_failure_of_ours(
    gateway: Gateway, app: StartApp, caplog: pytest.LogCaptureFixture
) -> None:
    connections: queue.Queue[socket.socket] = queue.Queue()
    over = threading.Event()

    def serve(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        connection.sendall(UPGRADED)
        connections.put(connection)
        over.wait(HANG_SECONDS)

    upstream = app(serve)
    for _ in range(8):
        with connect(gateway) as client:
            client.sendall(HANDSHAKE)
            read_until(client, b"\r\n\r\n")
            with standing_still(gateway):
                client.shutdown(socket.SHUT_WR)
                reset(connections.get(timeout=HANG_SECONDS))
            read_what_comes(client)
    over.set()
    eventually(lambda: upstream.ended == 8, what="the end of the app's connections")
    assert not [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
