"""Nobody outruns a slower side of the gateway."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

import pytest

from gpu_worker.gateway import Gateway
from tests.gpu_worker.raw_apps import (
    HANDSHAKE,
    HANG_SECONDS,
    UPGRADED,
    App,
    Serve,
    connect,
    read_until,
    read_what_comes,
    request,
)
from tests.gpu_worker.worker import eventually

StartApp = Callable[[Serve], App]
HELD_BACK_BYTES = 64 * 1024 * 1024  # far more than all buffers on the way


def test_an_app_that_does_not_read_holds_back_who_uploads(gateway: Gateway, app: StartApp) -> None:
    go = threading.Event()

    def serve(connection: socket.socket) -> None:
        data = read_until(connection, b"\r\n\r\n").partition(b"\r\n\r\n")[2]
        go.wait(HANG_SECONDS)
        size = len(data)
        while size < HELD_BACK_BYTES and (more := connection.recv(1 << 20)):
            size += len(more)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n%08d" % size)

    app(serve)
    with connect(gateway) as client:
        client.sendall(request(method="POST", head=f"Content-Length: {HELD_BACK_BYTES}\r\n"))
        sent = send_until_held_back(client, HELD_BACK_BYTES)
        assert sent < HELD_BACK_BYTES
        go.set()
        client.sendall(bytes(HELD_BACK_BYTES - sent))
        assert read_until(client, b"%08d" % HELD_BACK_BYTES).endswith(b"%08d" % HELD_BACK_BYTES)


@pytest.mark.parametrize("slow", ["app", "client"])
def test_who_does_not_read_an_upgraded_connection_holds_the_other_back(
    gateway: Gateway, app: StartApp, slow: str
) -> None:
    """And all arrives once it reads."""
    go, held_back, got = threading.Event(), threading.Event(), []

    def read_later(connection: socket.socket) -> None:
        go.wait(HANG_SECONDS)
        got.append(len(read_what_comes_quickly(connection)))

    def write(connection: socket.socket) -> None:
        sent = send_until_held_back(connection, HELD_BACK_BYTES)
        if sent < HELD_BACK_BYTES:
            held_back.set()
        connection.sendall(bytes(HELD_BACK_BYTES - sent))
        connection.shutdown(socket.SHUT_WR)

    def serve(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        connection.sendall(UPGRADED)
        if slow == "app":
            read_later(connection)
        else:
            write(connection)
            read_what_comes(connection)

    app(serve)
    with connect(gateway) as client:
        client.sendall(HANDSHAKE)
        assert client.recv(len(UPGRADED), socket.MSG_WAITALL) == UPGRADED
        writer = threading.Thread(target=write, args=(client,), daemon=True)
        if slow == "app":
            writer.start()
        assert held_back.wait(HANG_SECONDS)
        go.set()
        if slow == "app":
            writer.join(HANG_SECONDS)
            eventually(lambda: bool(got), what="the app's reading")
        else:
            read_later(client)
    assert got == [HELD_BACK_BYTES]


def send_until_held_back(connection: socket.socket, size: int) -> int:
    """How much could be sent before nothing more was taken for a while."""
    sent, block = 0, bytes(1 << 20)
    before = connection.gettimeout()
    connection.settimeout(1.0)
    with contextlib.suppress(TimeoutError):
        while sent < size:
            sent += connection.send(block[: size - sent])
    connection.settimeout(before)
    return sent


def read_what_comes_quickly(connection: socket.socket) -> bytearray:
    data, room = bytearray(), memoryview(bytearray(1 << 20))
    while size := connection.recv_into(room):
        data += room[:size]
    return data
