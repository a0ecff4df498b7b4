"""What an app says before it goes arrives, also where it goes in the middle of what it is sent."""

from __future__ import annotations

import queue
import socket
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
    reset,
    standing_still,
)

StartApp = Callable[[Serve], App]
UPLOAD = request("/", method="POST", head="Content-Length: 1000000\r\n")
REFUSAL = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 4\r\n\r\nbig!"


@pytest.fixture
def connections(app: StartApp) -> queue.Queue[socket.socket]:
    """Those of an app that has read the head of a request."""
    found: queue.Queue[socket.socket] = queue.Queue()

    def serve(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        found.put(connection.dup())

    app(serve)
    return found


def test_a_refusal_of_an_upload_arrives_though_the_app_reads_no_more(
    gateway: Gateway, connections: queue.Queue[socket.socket]
) -> None:
    """It closes with bytes unread, which resets the connection while the gateway writes to it."""
    with connect(gateway) as client:
        client.sendall(UPLOAD)
        with connections.get(timeout=HANG_SECONDS) as to_app, standing_still(gateway):
            client.sendall(bytes(1000))
            to_app.sendall(REFUSAL)
            reset(to_app)
        assert read_until(client, b"big!").startswith(b"HTTP/1.1 413 ")


def test_half_an_answer_stays_half_of_one(gateway: Gateway, connections: queue.Queue[socket.socket]) -> None:
    with connect(gateway) as client:
        client.sendall(UPLOAD)
        with connections.get(timeout=HANG_SECONDS) as to_app, standing_still(gateway):
            client.sendall(bytes(1000))
            to_app.sendall(REFUSAL[:-1])
            reset(to_app)
        assert not read_what_comes(client).endswith(b"big!")


def test_the_close_frame_of_an_app_that_goes_at_once_arrives(
    gateway: Gateway, connections: queue.Queue[socket.socket]
) -> None:
    with connect(gateway) as client:
        client.sendall(HANDSHAKE)
        with connections.get(timeout=HANG_SECONDS) as to_app:
            to_app.sendall(UPGRADED)
            assert read_until(client, b"\r\n\r\n") == UPGRADED
            with standing_still(gateway):
                client.sendall(bytes(1000))
                to_app.sendall(b"last words")
                reset(to_app)
        assert read_until(client, b"words") == b"last words"
