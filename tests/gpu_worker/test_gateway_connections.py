"""Connections of the gateway: one request after the other, nobody outruns a slower side, nothing is kept for ever."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from gpu_worker import app_connections, caller, upgraded
from gpu_worker.gateway import Gateway
from gpu_worker.http_heads import HeadReader, HeadTooLong
from tests.gpu_worker.raw_apps import (
    HANG_SECONDS,
    LEASE,
    TOKEN,
    App,
    Serve,
    connect,
    read_all,
    read_until,
    read_what_comes,
    request,
)
from tests.gpu_worker.worker import eventually

StartApp = Callable[[Serve], App]
HANDSHAKE = request(head="Connection: Upgrade\r\nUpgrade: websocket\r\n")
UPGRADED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
HELD_BACK_BYTES = 64 * 1024 * 1024  # far more than all buffers on the way


def echo_of_target(connection: socket.socket) -> None:
    """Answer each request with its target, for as long as somebody asks."""
    connection.settimeout(None)
    data = b""
    while True:
        while b"\r\n\r\n" not in data:
            more = connection.recv(65536)
            if not more:
                return
            data += more
        head, _, data = data.partition(b"\r\n\r\n")
        target = head.split(b" ")[1]
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(target) + target)


# ---- one request after the other -------------------------------------------------------------------------------


def test_requests_that_come_together_are_answered_in_their_order(gateway: Gateway, app: StartApp) -> None:
    upstream = app(echo_of_target)
    unknown = b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n"

    with connect(gateway) as client:
        client.sendall(request("/1") + unknown + request("/22") + request("/333"))
        answer = read_until(client, b"/333")

    bodies = [answer.index(body) for body in (b"\r\n\r\n/1", b"HTTP/1.1 404", b"\r\n\r\n/22", b"\r\n\r\n/333")]
    assert bodies == sorted(bodies)
    assert answer.count(b"HTTP/1.1 ") == 4
    assert upstream.connections == 1


def test_a_request_behind_an_upload_is_the_next_one(gateway: Gateway, app: StartApp) -> None:
    def serve(connection: socket.socket) -> None:
        head, _, body = read_until(connection, b"\r\n\r\n").partition(b"\r\n\r\n")
        while head.startswith(b"POST") and not body.endswith(b"0\r\n\r\n"):
            body += connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    app(serve)
    upload = request(method="POST", head="Transfer-Encoding: chunked\r\n", body=b"3\r\nabc\r\n0\r\n\r\n")
    with connect(gateway) as client:
        client.sendall(upload + request("/next"))
        answer = read_until(client, b"Content-Length: 0\r\n\r\n")
    assert answer.endswith(b"3\r\nabc\r\n0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 11])
def test_a_request_may_come_in_any_pieces(gateway: Gateway, app: StartApp, size: int) -> None:
    app(echo_of_target)
    whole = b"\r\n" + request("/pieces")

    with connect(gateway) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(0, len(whole), size):
            client.sendall(whole[at : at + size])
        assert read_until(client, b"/pieces").endswith(b"/pieces")


def test_every_split_of_a_head_gives_the_same_head() -> None:
    head, rest = b"GET / HTTP/1.1\r\nA: b\r\nC: d\r\n\r\n", b"\r\nrest"
    sent = b"\r\n" + head + rest
    for size in range(1, len(sent) + 1):
        reader = HeadReader()
        for at in range(0, len(sent), size):
            came = reader.take(sent[at : at + size])
            if came is not None:
                break
        assert came == head
        assert reader.rest + sent[at + size :] == rest


def test_a_head_without_end_is_not_collected_for_ever() -> None:
    reader = HeadReader()
    with pytest.raises(HeadTooLong):
        for _ in range(3):
            reader.take(b"a" * 32_768)


def test_an_app_cannot_upgrade_in_the_middle_of_a_request(gateway: Gateway, app: StartApp) -> None:
    def serve(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        connection.sendall(UPGRADED + b"frame")
        read_what_comes(connection)

    app(serve)
    with connect(gateway) as client:
        fields = "Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 5\r\n"
        client.sendall(request(method="POST", head=fields, body=b"abc"))
        assert b"X-OpenFace-Gateway: app-broke-off\r\n" in read_until(client, b"\r\n\r\n")


# ---- nobody outruns a slower side ------------------------------------------------------------------------------


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


# ---- upgraded connections end ----------------------------------------------------------------------------------


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


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    connection.close()


# ---- nothing is kept for ever ----------------------------------------------------------------------------------


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
