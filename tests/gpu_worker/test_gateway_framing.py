"""What delimits messages is the gateway's own: no app and no client can put bytes between two of them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import threading
import uuid
from collections.abc import Callable

import pytest

from gpu_worker.gateway import Gateway
from gpu_worker.http_framing import ChunkedBody
from gpu_worker.relay import MOST_INFORMATIONAL
from tests.gpu_worker.raw_apps import (
    LEASE,
    TOKEN,
    App,
    Serve,
    answer_of,
    connect,
    read_all,
    read_until,
    read_what_comes,
    request,
)
from tests.gpu_worker.worker import eventually

StartApp = Callable[[Serve], App]
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
INJECTED = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"

BROKEN_CHUNKS = {
    "bare LF after a trailer": b"5\r\nhello\r\n0\r\nX: y\n\n",
    "bare LF after a trailer's line": b"5\r\nhello\r\n0\r\nX: y\r\n\n",
    "bare LF in a trailer": b"5\r\nhello\r\n0\r\nX: a\n\r\n\r\n",
    "bare CR in a trailer": b"5\r\nhello\r\n0\r\nX: a\rb\r\n\r\n",
    "NUL in a trailer": b"5\r\nhello\r\n0\r\nX: a\0b\r\n\r\n",
    "folded trailer": b"5\r\nhello\r\n0\r\nX: a\r\n b\r\n\r\n",
    "trailer without a name": b"5\r\nhello\r\n0\r\nhello\r\n\r\n",
    "space before a trailer's colon": b"5\r\nhello\r\n0\r\nX : a\r\n\r\n",
    "too many trailers": b"5\r\nhello\r\n0\r\n" + b"X: y\r\n" * 101 + b"\r\n",
    "trailer without end": b"5\r\nhello\r\n0\r\nX: " + b"y" * 5000,
    "bare LF in an extension": b"5\r\nhello\r\n0;x\n\r\n\r\n",
    "bare CR in an extension": b"5;a\rb\r\nhello\r\n0\r\n\r\n",
    "NUL in an extension": b"5;a\0b\r\nhello\r\n0\r\n\r\n",
    "extension without end": b"5;" + b"a" * 5000,
    "bare LF after a size": b"5\nhello\r\n0\r\n\r\n",
    "bare LF after the last size": b"5\r\nhello\r\n0\n\n",
    "bare LF after a chunk": b"5\r\nhello\n0\r\n\r\n",
    "bare CR after a chunk": b"5\r\nhello\r0\r\n\r\n",
    "nothing after a chunk": b"5\r\nhello0\r\n\r\n",
    "too much in a chunk": b"5\r\nhello!\r\n0\r\n\r\n",
    "sign before a size": b"+5\r\nhello\r\n0\r\n\r\n",
    "prefix of a size": b"0x5\r\nhello\r\n0\r\n\r\n",
    "space before a size": b" 5\r\nhello\r\n0\r\n\r\n",
    "space after a size": b"5 \r\nhello\r\n0\r\n\r\n",
    "underscore in a size": b"0_5\r\nhello\r\n0\r\n\r\n",
    "17 digits": b"00000000000000005\r\nhello\r\n0\r\n\r\n",
    "negative size": b"-5\r\nhello\r\n0\r\n\r\n",
    "no size": b"\r\nhello\r\n0\r\n\r\n",
}


# ---- chunks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunks", BROKEN_CHUNKS.values(), ids=BROKEN_CHUNKS.keys())
def test_an_app_whose_chunks_are_not_exact_loses_its_connection(gateway: Gateway, app: StartApp, chunks: bytes) -> None:
    released = threading.Event()

    def serve(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        connection.sendall(CHUNKED + chunks + INJECTED)
        released.set()
        read_what_comes(connection)

    upstream = app(serve)
    with connect(gateway) as client:
        client.sendall(request())
        data = b""
        with pytest.raises(ConnectionResetError):
            while more := client.recv(65536):
                data += more
    assert data in (b"", CHUNKED, CHUNKED + b"5\r\nhello\r\n")
    with connect(gateway) as client:
        client.sendall(request())
        eventually(lambda: upstream.connections == 2, what="a new connection to the app")


@pytest.mark.parametrize("chunks", BROKEN_CHUNKS.values(), ids=BROKEN_CHUNKS.keys())
def test_a_client_whose_chunks_are_not_exact_loses_its_connection_and_the_app_its_own(
    gateway: Gateway, app: StartApp, chunks: bytes
) -> None:
    seen: list[bytes] = []
    ended = threading.Event()

    def serve(connection: socket.socket) -> None:
        data = read_until(connection, b"\r\n\r\n").partition(b"\r\n\r\n")[2]
        try:
            while more := connection.recv(65536):
                data += more
        except ConnectionResetError:
            pass
        seen.append(data)
        ended.set()

    app(serve)
    with connect(gateway) as client:
        client.sendall(request(method="POST", head="Transfer-Encoding: chunked\r\n", body=chunks + request("/evil")))
        assert read_what_comes(client) == b""
        assert ended.wait(10)
    assert seen[0] in (b"", b"5\r\nhello\r\n")


def test_chunks_are_written_anew_without_extensions_and_trailers(gateway: Gateway, app: StartApp) -> None:
    sent = b'0004 ;ext="1"\r\nabcd\r\nB\r\nefghijklmno\r\n000;last\r\nX-Sum: 1\r\n\r\n'
    anew = b"4\r\nabcd\r\nb\r\nefghijklmno\r\n0\r\n\r\n"
    seen: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        data = read_until(connection, b"\r\n\r\n")
        while not data.endswith(b"\r\n0\r\n\r\n"):
            data += connection.recv(65536)
        seen.append(data)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n" + sent)

    app(serve)
    with connect(gateway) as client:
        client.sendall(request(method="PUT", head="Trailer: X-Sum\r\nTransfer-Encoding: chunked\r\n", body=sent))
        answer = read_until(client, b"\r\n0\r\n\r\n")
    head, _, body = seen[0].partition(b"\r\n\r\n")
    assert body == anew
    assert b"X-Sum" not in head
    assert answer == CHUNKED + anew


def test_a_chunk_that_never_ends_passes_in_pieces_of_known_size(gateway: Gateway, app: StartApp) -> None:
    def serve(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        connection.sendall(CHUNKED + b"FFFFFFFFFFFFFFFF\r\nabc")
        read_what_comes(connection)

    app(serve)
    with connect(gateway) as client:
        client.sendall(request())
        assert read_until(client, b"abc\r\n") == CHUNKED + b"3\r\nabc\r\n"


def test_every_split_of_a_chunked_body_gives_the_same_bytes() -> None:
    sent = b"3;a=b\r\nabc\r\n0\r\nX: y\r\n\r\nHTTP/1.1"
    for size in range(1, len(sent)):
        body, buffer, passed = ChunkedBody(), bytearray(), b""
        for at in range(0, len(sent), size):
            buffer += sent[at : at + size]
            used, data = body.take(buffer)
            del buffer[:used]
            passed += data
        assert body.complete
        assert bytes(buffer) == b"HTTP/1.1"
        content = passed.removesuffix(b"0\r\n\r\n")
        assert b"".join(content.split(b"\r\n")[1::2]) == b"abc"


# ---- heads -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\nX: y",
        b"HTTP/1.1 200 O\rK",
        b"HTTP/1.1 200 O\0K",
        b"HTTP/1.1  200 OK",
        b"HTTP/1.1 20 OK",
        b"HTTP/2 200 OK",
        b"HTTP/1.1 200 OK\r\nX: a\nY: b",
        b"HTTP/1.1 200 OK\r\nX: a\rY: b",
        b"HTTP/1.1 200 OK\r\nX: a\0b",
        b"HTTP/1.1 200 OK\r\nX: a\x1cb",
        b"HTTP/1.1 200 OK\r\nX: a\r\n b",
        b"HTTP/1.1 200 OK\r\nX : a",
        b"HTTP/1.1 200 OK\r\n: a",
        b"HTTP/1.1 200 OK\r\nno colon",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2, 2",
        b"HTTP/1.1 200 OK\r\nContent-Length: -2",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0x2",
        b"HTTP/1.1 200 OK\r\nContent-Length:",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: \x0bchunked",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity",
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked",
        b"HTTP/1.1 204 No Content\r\nContent-Length: 2\r\nTransfer-Encoding: chunked",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade",
    ],
)
def test_a_doubtful_head_of_an_app_is_answered_by_the_gateway(gateway: Gateway, app: StartApp, head: bytes) -> None:
    def serve(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        connection.sendall(head + b"\r\n\r\n" + INJECTED)
        read_what_comes(connection)

    upstream = app(serve)
    with connect(gateway) as client:
        for times in (1, 2):
            client.sendall(request())
            answer = read_until(client, b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
            assert b"X-OpenFace-Gateway: app-broke-off\r\n" in answer
            assert answer.endswith(b"\r\n\r\n")
            assert upstream.connections == times


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
@pytest.mark.parametrize("field", [b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n"])
def test_an_answer_without_body_announces_none(gateway: Gateway, app: StartApp, status: bytes, field: bytes) -> None:
    answer = b"HTTP/1.1 " + status + b"\r\n" + field + b"X-Kept: 1\r\n\r\n"

    assert answer_of(gateway, app, answer) == b"HTTP/1.1 " + status + b"\r\nX-Kept: 1\r\n\r\n"


def test_an_informational_answer_announces_no_body_and_is_not_the_gateways(gateway: Gateway, app: StartApp) -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nContent-Length: 50\r\nX-OpenFace-Gateway: health\r\n\r\n"

    def serve(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        connection.sendall(early + OK)

    app(serve)
    with connect(gateway) as client:
        client.sendall(request())
        assert read_until(client, b"ok") == b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + OK


def test_informational_answers_without_end_are_no_answer(gateway: Gateway, app: StartApp) -> None:
    def serve(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        while True:
            connection.sendall(b"HTTP/1.1 102 Processing\r\n\r\n")

    app(serve)
    with connect(gateway) as client:
        client.sendall(request())
        answer = read_until(client, b"X-OpenFace-Gateway: app-broke-off\r\n")
    assert answer.count(b"HTTP/1.1 102 Processing\r\n\r\n") == MOST_INFORMATIONAL
    assert b"HTTP/1.1 502 Bad Gateway\r\n" in answer


# ---- connections -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [OK, CHUNKED + b"2\r\nok\r\n0\r\n\r\n", b"HTTP/1.1 204 No Content\r\n\r\n"])
def test_what_an_app_says_after_an_answer_is_heard_by_nobody(gateway: Gateway, app: StartApp, answer: bytes) -> None:
    ended = []

    def serve(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        connection.sendall(answer + INJECTED)
        ended.append(read_what_comes(connection))

    upstream = app(serve)
    with connect(gateway) as client:
        for _ in range(3):
            client.sendall(request())
            assert read_until(client, answer[-6:]) == answer
        assert upstream.connections == 3
        eventually(lambda: ended == [b""] * 3, what="the end of the connections to the app")


def test_what_an_app_says_while_its_connection_is_idle_is_heard_by_nobody(gateway: Gateway, app: StartApp) -> None:
    said, go = threading.Event(), threading.Event()

    def serve(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        connection.sendall(OK)
        go.wait(10)
        connection.sendall(INJECTED)
        said.set()
        read_what_comes(connection)

    upstream = app(serve)
    with connect(gateway) as client:
        client.sendall(request())
        assert read_until(client, b"ok") == OK
        go.set()
        assert said.wait(10)
        eventually(lambda: upstream.ended == 1, what="the end of the connection that spoke unasked")
        client.sendall(request())
        assert read_until(client, b"ok") == OK
    assert upstream.connections == 2


def test_no_connection_is_shared_between_leases(gateway: Gateway, app: StartApp) -> None:
    def serve(connection: socket.socket) -> None:
        while read_until(connection, b"\r\n\r\n"):
            connection.sendall(OK)

    upstream = app(serve)
    other = str(uuid.UUID(int=9))
    gateway.open(other, upstream.address, hashlib.sha256(TOKEN.encode()).hexdigest())
    with connect(gateway) as client:
        for lease, connections in ((LEASE, 1), (LEASE, 1), (other, 2), (other, 2)):
            client.sendall(request().replace(LEASE.encode(), lease.encode()))
            assert read_until(client, b"ok") == OK
            assert upstream.connections == connections


# ---- apps that give no answer ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"", b"app-broke-off"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Enc", b"app-broke-off"),
        (b"not HTTP\r\n\r\n", b"app-broke-off"),
        (b"\x16\x03\x01\x02\x00", b"app-broke-off"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000 + b"\r\n\r\n", b"app-head-too-large"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 500_000, b"app-head-too-large"),
    ],
    ids=["nothing", "half a head", "other words", "TLS", "a head above the limit", "a head without end"],
)
@pytest.mark.parametrize("upload", [False, True], ids=["GET", "POST"])
@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
def test_an_app_without_an_answer_is_a_502_that_says_so(
    gateway: Gateway, app: StartApp, said: bytes, reason: bytes, upload: bool, reset: bool
) -> None:
    def serve(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        if reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        connection.sendall(said)

    app(serve)
    with connect(gateway) as client:
        # of the upload, a part stays unread in the gateway's socket: its words must arrive all the same
        body = b"x" * 3_000_000
        sent = request(method="POST", head=f"Content-Length: {len(body)}\r\n", body=body) if upload else request()
        threading.Thread(target=_send_all, args=(client, sent), daemon=True).start()
        answer = read_until(client, b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
    # a reset may overtake what was said before it, and a close with an unread upload is one
    wanted = {reason, b"app-broke-off"} if reset or upload else {reason}
    assert any(b"X-OpenFace-Gateway: " + one + b"\r\n" in answer for one in wanted)


def _send_all(client: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):
        client.sendall(data)


# ---- handshakes ------------------------------------------------------------------------------------------------

HANDSHAKE = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAA\r\n"


def test_clients_that_leave_during_a_handshake_leave_no_connection(gateway: Gateway, app: StartApp) -> None:
    def serve(connection: socket.socket) -> None:
        read_what_comes(connection)  # and never answers

    upstream = app(serve)
    before = open_files()
    clients = [connect(gateway) for _ in range(50)]
    for client in clients:
        client.sendall(request(head=HANDSHAKE))
    eventually(lambda: upstream.connections == 50, what="the handshakes")
    for client in clients:
        client.close()
    eventually(lambda: upstream.ended == 50, what="the end of the connections to the app")
    eventually(lambda: open_files() <= before, what="the end of the gateway's sockets")


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_an_app_that_ends_a_handshake_without_an_answer_is_a_502(gateway: Gateway, app: StartApp) -> None:
    def serve(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")

    app(serve)

    with connect(gateway) as client:
        client.sendall(request(head=HANDSHAKE))
        assert b"X-OpenFace-Gateway: app-broke-off\r\n" in read_all(client)


def test_an_upgrade_announces_no_body(gateway: Gateway, app: StartApp) -> None:
    def serve(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        connection.sendall(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Content-Length: 99\r\nX-OpenFace-Gateway: health\r\n\r\n"
        )
        connection.sendall(connection.recv(5))

    app(serve)
    with connect(gateway) as client:
        client.sendall(request(head=HANDSHAKE))
        assert read_until(client, b"\r\n\r\n") == (
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        )
        client.sendall(b"frame")
        assert read_all(client) == b"frame"


def test_a_client_that_ended_its_direction_still_reads_an_upgraded_connection(gateway: Gateway, app: StartApp) -> None:
    def serve(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        connection.sendall(b"heard " + read_all(connection))

    app(serve)
    with connect(gateway) as client:
        client.sendall(request(head=HANDSHAKE))
        read_until(client, b"\r\n\r\n")
        client.sendall(b"last words")
        client.shutdown(socket.SHUT_WR)
        assert read_all(client) == b"heard last words"
