"""Requests of one connection to the gateway: one after the other, in any pieces."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from gpu_worker.caller import Caller
from gpu_worker.gateway import Gateway
from gpu_worker.http_heads import HeadReader, HeadTooLong, Request
from tests.gpu_worker.raw_apps import (
    UPGRADED,
    App,
    Serve,
    connect,
    echo_of_target,
    read_until,
    read_what_comes,
    request,
    standing_still,
)

StartApp = Callable[[Serve], App]


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


def test_very_many_requests_of_one_connection_let_others_have_their_turn(gateway: Gateway) -> None:
    guess, number = b"GET /guess HTTP/1.1\r\nHost: a\r\n\r\n", 3000
    asked: list[bytes] = []
    answer = gateway._answer

    def noting(caller: Caller, request: Request) -> None:
        asked.append(request.target)
        answer(caller, request)

    gateway._answer = noting  # type: ignore[method-assign]
    with connect(gateway) as many, connect(gateway) as other:
        with standing_still(gateway):
            many.setblocking(False)
            sent = 0
            while sent < len(guess) * number:
                sent += many.send((guess * number)[sent:])
            other.sendall(b"GET /other HTTP/1.1\r\nHost: a\r\n\r\n")
        many.setblocking(True)
        answers = b""
        while answers.count(b"\r\n\r\n") < number:
            answers += many.recv(262_144)
        assert read_until(other, b"\r\n\r\n").startswith(b"HTTP/1.1 404 ")

    assert asked.count(b"/guess") == number == answers.count(b"HTTP/1.1 404 ")
    assert asked.index(b"/other") < number / 2


@pytest.mark.parametrize("before", [0, 1, 600, 2000])
def test_an_upload_behind_very_many_requests_arrives_whole(gateway: Gateway, app: StartApp, before: int) -> None:
    bodies: list[bytes] = []
    body = bytes(range(256)) * 400

    def serve(connection: socket.socket) -> None:
        got = read_until(connection, b"\r\n\r\n").partition(b"\r\n\r\n")[2]
        while len(got) < len(body):
            got += connection.recv(65536)
        bodies.append(got)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone")

    app(serve)
    upload = request(method="POST", head=f"Content-Length: {len(body)}\r\n", body=body)
    with connect(gateway) as client:
        client.sendall(b"GET /guess HTTP/1.1\r\nHost: a\r\n\r\n" * before + upload)
        answers = read_until(client, b"done")

    assert bodies == [body]
    assert answers.count(b"HTTP/1.1 404 ") == before
