"""The gateway carries requests and answers byte for byte, streams both ways, and hints at nothing to strangers."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import http.client
import json
import socket
import threading
import uuid
from collections.abc import Callable

import aiohttp
import pytest
from aiohttp import web

from gpu_worker.gateway import Gateway
from tests.gpu_worker.raw_apps import (
    HANG_SECONDS,
    LEASE,
    SECRET,
    TOKEN,
    WORKER_ID,
    App,
    Serve,
    answer_of,
    connect,
    read_all,
    read_until,
    read_until_closed_or,
    read_what_comes,
    request,
    seen_by_app,
)
from tests.gpu_worker.worker import eventually, free_port

# ---- requests --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target", ["/", "//a//b", "/a/../b", "/%2e%2e/x", "/a%2Fb", "/x?", "/x?a=1&a=2&b=%20", "/lease/x", "/ü", "/a;b=c,d"]
)
def test_the_target_arrives_as_it_was_sent(gateway: Gateway, app: Callable[[Serve], App], target: str) -> None:
    head = seen_by_app(gateway, app, request(target))

    assert head.split(b"\r\n")[0] == b"GET " + target.encode("latin-1") + b" HTTP/1.1"


def test_fields_keep_their_order_case_and_bytes(gateway: Gateway, app: Callable[[Serve], App]) -> None:
    fields = "Cookie: a=1\r\nx-Odd_name: v\xe9 lue\r\nAccept: text/*\r\nCOOKIE: b=2\r\nAuthorization: Bearer mine\r\n"

    head = seen_by_app(gateway, app, request(head=fields))

    assert head == b"GET / HTTP/1.1\r\nHost: space.example:8091\r\n" + fields.encode("latin-1") + b"\r\n"


def test_hop_by_hop_fields_and_the_runtime_token_end_here(gateway: Gateway, app: Callable[[Serve], App]) -> None:
    fields = "Connection: keep-alive, X-Private\r\nX-Private: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\nX-Kept: 2\r\n"

    head = seen_by_app(gateway, app, request(head=fields))

    assert head == b"GET / HTTP/1.1\r\nHost: space.example:8091\r\nX-Kept: 2\r\n\r\n"


@pytest.mark.parametrize(
    "fields",
    [
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 3\r\nContent-Length: 4\r\n",
        "Content-Length: 3\r\nContent-Length: 3\r\n",
        "Content-Length: 3, 3\r\n",
        "Content-Length: +3\r\n",
        "Transfer-Encoding: chunked, gzip\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "X-Folded: a\r\n b\r\n",
        "Bad Name: a\r\n",
        "X-Space : a\r\n",
        "X-Bare: a\nX-Second: b\r\n",
        "X-Bare: a\rX-Second: b\r\n",
        "X-Nul: a\0b\r\n",
        "X-Separator: a\x0bb\r\n",
    ],
)
def test_an_ambiguous_request_is_not_passed_on(gateway: Gateway, app: Callable[[Serve], App], fields: str) -> None:
    upstream = app(lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))

    with connect(gateway) as client:
        client.sendall(request(method="POST", head=fields, body=b"abc"))
        assert read_what_comes(client) == b""
    assert upstream.connections == 0


def test_the_first_byte_of_an_upload_arrives_before_the_last_is_sent(
    gateway: Gateway, app: Callable[[Serve], App]
) -> None:
    first = threading.Event()

    def serve(connection: socket.socket) -> None:
        data = read_until(connection, b"\r\n\r\n")
        body = data.partition(b"\r\n\r\n")[2] or connection.recv(1)
        first.set()
        while len(body) < 10:
            body += connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n" + body)

    app(serve)
    with connect(gateway) as client:
        client.sendall(request(method="POST", head="Content-Length: 10\r\n", body=b"01234"))
        assert first.wait(HANG_SECONDS)
        client.sendall(b"56789")
        assert read_until_closed_or(client, b"\r\n\r\n0123456789").endswith(b"0123456789")


def test_the_app_itself_says_continue(gateway: Gateway, app: Callable[[Serve], App]) -> None:
    asked = threading.Event()

    def serve(connection: socket.socket) -> None:
        head = read_until(connection, b"\r\n\r\n")
        assert b"Expect: 100-continue" in head
        asked.wait(HANG_SECONDS)
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n" + read_until(connection, b"abc"))

    app(serve)
    with connect(gateway) as client:
        client.sendall(request(method="POST", head="Content-Length: 3\r\nExpect: 100-continue\r\n"))
        asked.set()
        assert client.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b"abc")
        assert read_until(client, b"abc").startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_refusal_arrives_before_the_body_is_sent(gateway: Gateway, app: Callable[[Serve], App]) -> None:
    def serve(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        connection.sendall(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 4\r\n\r\nbig!")
        read_all(connection)

    app(serve)
    with connect(gateway) as client:
        client.sendall(request(method="POST", head="Content-Length: 99999999\r\nExpect: 100-continue\r\n"))
        assert read_until(client, b"big!").startswith(b"HTTP/1.1 413 Content Too Large\r\n")


# ---- answers ---------------------------------------------------------------------------------------------------


def test_an_answer_passes_as_the_app_wrote_it(gateway: Gateway, app: Callable[[Serve], App]) -> None:
    answer = (
        b"HTTP/1.1 299 Odd Phrase\r\nServer: mine\r\nSet-Cookie: a=1; Path=/\r\nset-cookie: b=2\r\n"
        b"X-Latin: \xe9\r\nContent-Length: 5\r\n\r\nhello"
    )

    assert answer_of(gateway, app, answer) == answer


def test_head_keeps_its_length(gateway: Gateway, app: Callable[[Serve], App]) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n"

    assert answer_of(gateway, app, answer, sent=request(method="HEAD")) == answer


def test_an_app_cannot_speak_as_the_gateway(gateway: Gateway, app: Callable[[Serve], App]) -> None:
    answer = b"HTTP/1.1 404 Not Found\r\nX-OpenFace-Gateway: refused\r\nContent-Length: 0\r\n\r\n"

    assert b"X-OpenFace" not in answer_of(gateway, app, answer)


def test_a_chunk_is_out_before_the_next_is_written(gateway: Gateway, app: Callable[[Serve], App]) -> None:
    received = threading.Event()

    def serve(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
        assert received.wait(HANG_SECONDS)
        connection.sendall(b"4\r\nlast\r\n0\r\n\r\n")

    app(serve)
    with connect(gateway) as client:
        client.sendall(request())
        read_until(client, b"5\r\nfirst\r\n")
        received.set()
        assert read_until(client, b"0\r\n\r\n").endswith(b"4\r\nlast\r\n0\r\n\r\n")


def test_an_answer_without_length_is_passed_on_in_chunks_so_that_its_end_is_told(
    gateway: Gateway, app: Callable[[Serve], App]
) -> None:
    def serve(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        connection.sendall(b"HTTP/1.0 200 OK\r\n\r\nall")

    app(serve)
    with connect(gateway) as client:
        for _ in range(2):
            client.sendall(request())
            answer = read_until(client, b"0\r\n\r\n")
            assert answer == b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nall\r\n0\r\n\r\n"


def test_an_answer_without_length_ends_with_the_connection_for_who_knows_no_chunks(
    gateway: Gateway, app: Callable[[Serve], App]
) -> None:
    def serve(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        connection.sendall(b"HTTP/1.0 200 OK\r\n\r\nall")

    app(serve)
    with connect(gateway) as client:
        client.sendall(request().replace(b" HTTP/1.1\r\n", b" HTTP/1.0\r\n"))
        assert read_all(client) == b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nall"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
    ],
)
def test_a_broken_answer_is_broken_for_the_client_too(
    gateway: Gateway, app: Callable[[Serve], App], answer: bytes
) -> None:
    def serve(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        connection.sendall(answer)

    app(serve)
    with connect(gateway) as client, pytest.raises(ConnectionResetError):
        client.sendall(request())
        read_all(client)


def test_an_app_that_resets_a_stream_without_length_is_not_taken_for_complete(
    gateway: Gateway, app: Callable[[Serve], App]
) -> None:
    def serve(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\nhalf")
        connection.recv(1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")

    upstream = app(serve)
    with connect(gateway) as client:
        client.sendall(request(method="POST", head="Content-Length: 1\r\n"))
        read_until(client, b"half")
        client.sendall(b"x")
        with pytest.raises(ConnectionResetError):
            read_all(client)
    assert upstream.connections == 1


@pytest.mark.parametrize("before_the_head", [True, False])
def test_a_client_that_leaves_ends_the_apps_request(
    gateway: Gateway, app: Callable[[Serve], App], before_the_head: bool
) -> None:
    asked, ended = threading.Event(), threading.Event()

    def serve(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        if not before_the_head:
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        asked.set()
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(1) == b""
        ended.set()

    app(serve)
    with connect(gateway) as client:
        client.sendall(request())
        assert asked.wait(HANG_SECONDS)
    assert ended.wait(HANG_SECONDS)


def test_an_app_that_closed_its_idle_connection_is_asked_again(gateway: Gateway, app: Callable[[Serve], App]) -> None:
    def serve(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    upstream = app(serve)
    with connect(gateway) as client:
        for _ in range(20):
            client.sendall(request())
            assert read_until(client, b"ok").startswith(b"HTTP/1.1 200 OK\r\n")
    assert upstream.connections == 20


def test_idle_connections_to_an_app_are_used_again(gateway: Gateway, app: Callable[[Serve], App]) -> None:
    def serve(connection: socket.socket) -> None:
        while read_until(connection, b"\r\n\r\n"):
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    upstream = app(serve)
    for _ in range(5):
        with connect(gateway) as client:
            client.sendall(request())
            read_until(client, b"ok")
    assert upstream.connections == 1


def test_a_slow_reader_slows_the_app_instead_of_filling_our_memory(
    gateway: Gateway, app: Callable[[Serve], App]
) -> None:
    size, sent = 200 * 1024 * 1024, [0]

    def serve(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n".encode())
        connection.settimeout(0.5)  # a send that blocks so long is one that is held back
        block = b"x" * 65536
        while sent[0] < size:
            sent[0] += connection.send(block)

    app(serve)
    with connect(gateway) as client:
        client.sendall(request())
        read_until(client, b"\r\n\r\n")
        before = eventually(lambda: sent[0] if sent[0] > 65536 else 0)
        eventually(lambda: steady(sent), what="back-pressure")
    assert before <= sent[0] < 64 * 1024 * 1024


def steady(counter: list[int]) -> bool:
    seen = counter[0]
    threading.Event().wait(0.6)
    return counter[0] == seen


def test_a_dead_app_is_a_502_of_the_gateway(gateway: Gateway, app: Callable[[Serve], App]) -> None:
    address = app(lambda connection: None).address
    gateway.close(LEASE)
    gateway.open(LEASE, (address[0], free_port()), hashlib.sha256(TOKEN.encode()).hexdigest())

    with connect(gateway) as client:
        client.sendall(request())
        answer = read_until(client, b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
    assert b"X-OpenFace-Gateway: app-unreachable\r\n" in answer


# ---- strangers -------------------------------------------------------------------------------------------------


def test_every_wrong_request_gets_the_same_empty_answer(gateway: Gateway, app: Callable[[Serve], App]) -> None:
    upstream = app(lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
    other = str(uuid.UUID(int=1))
    wrong = [
        ("/", TOKEN), ("/healthz", ""), ("/metrics", TOKEN), (f"/lease/{LEASE}", TOKEN), (f"/lease/{LEASE}/", ""),
        (f"/lease/{LEASE}/", TOKEN[:-1] + "0"), (f"/lease/{other}/", TOKEN), (f"/lease/../lease/{LEASE}/", TOKEN),
        (f"/lease/{LEASE.upper()}/", TOKEN), (f"//lease/{LEASE}/", TOKEN), (f"/healthz/../lease/{LEASE}/", TOKEN),
        (f"http://x/lease/{LEASE}/", TOKEN),
    ]  # fmt: skip

    answers = set()
    for target, token in wrong:
        with connect(gateway) as client:
            client.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\nX-OpenFace-Runtime: {token}\r\n\r\n".encode())
            answers.add(read_until(client, b"\r\n\r\n"))

    assert len(answers) == 1
    assert answers.pop().startswith(b"HTTP/1.1 404 Not Found\r\n")
    assert upstream.connections == 0


def test_two_runtime_tokens_are_no_token(gateway: Gateway, app: Callable[[Serve], App]) -> None:
    upstream = app(lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))

    with connect(gateway) as client:
        client.sendall(request(head="X-OpenFace-Runtime: guess\r\n"))
        assert read_until(client, b"\r\n\r\n").startswith(b"HTTP/1.1 404 ")
    assert upstream.connections == 0


def test_healthz_proves_who_answers(gateway: Gateway) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=HANG_SECONDS)
    connection.request("GET", "/healthz?nonce=1c9e5a7f30b246d8")
    answer = json.loads(connection.getresponse().read())
    connection.close()

    key = hashlib.sha256(SECRET.encode()).digest()
    assert answer == {
        "worker_id": WORKER_ID,
        "proof": hmac.digest(key, b"healthz:1c9e5a7f30b246d8", "sha256").hex(),
    }


def test_closing_a_lease_breaks_what_is_under_way(gateway: Gateway, app: Callable[[Serve], App]) -> None:
    def serve(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        connection.recv(1)

    app(serve)
    with connect(gateway) as client:
        client.sendall(request())
        read_until(client, b"1\r\na\r\n")
        gateway.close(LEASE)
        with pytest.raises(ConnectionResetError):
            read_all(client)


# ---- WebSocket -------------------------------------------------------------------------------------------------


CLOSED = web.AppKey("closed", list[object])
"""The close code of each connection, as the app saw it."""


async def echo(incoming: web.Request) -> web.StreamResponse:
    if incoming.path == "/refuse":
        return web.Response(status=403, text="members only", headers={"X-Why": "yes"})
    socket_ = web.WebSocketResponse(protocols=("v2.echo", "v1.echo"), max_msg_size=128 * 1024 * 1024)
    await socket_.prepare(incoming)
    async for message in socket_:
        if message.data == "bye":
            await socket_.close(code=4321, message=b"as you wish")
        elif message.type == aiohttp.WSMsgType.TEXT:
            await socket_.send_str(message.data)
        else:
            await socket_.send_bytes(message.data)
    incoming.app[CLOSED].append(socket_.close_code)
    return socket_


async def with_echo(gateway: Gateway, use: Callable[[aiohttp.ClientSession, str, list[object]], object]) -> None:
    application = web.Application()
    application[CLOSED] = []
    application.router.add_get("/{path:.*}", echo)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    address = runner.addresses[0]
    gateway.open(LEASE, (address[0], address[1]), hashlib.sha256(TOKEN.encode()).hexdigest())
    headers = {"X-OpenFace-Runtime": TOKEN}
    try:
        async with aiohttp.ClientSession(headers=headers) as session, asyncio.timeout(HANG_SECONDS * 3):
            await use(session, f"http://127.0.0.1:{gateway.port}/lease/{LEASE}", application[CLOSED])  # type: ignore[misc]
    finally:
        await runner.cleanup()


def test_a_websocket_carries_subprotocol_messages_and_close_reason(gateway: Gateway) -> None:
    async def use(session: aiohttp.ClientSession, base: str, closed: list[object]) -> None:
        async with session.ws_connect(f"{base}/ws", protocols=("v1.echo",)) as ws:
            assert ws.protocol == "v1.echo"
            await ws.send_str("grüezi")
            assert (await ws.receive()).data == "grüezi"
            await ws.send_bytes(b"\0\1")
            assert (await ws.receive()).data == b"\0\1"
            await ws.send_str("bye")
            message = await ws.receive()
            assert (message.type, ws.close_code, message.extra) == (aiohttp.WSMsgType.CLOSE, 4321, "as you wish")

    asyncio.run(with_echo(gateway, use))


def test_the_clients_close_code_reaches_the_app(gateway: Gateway) -> None:
    async def use(session: aiohttp.ClientSession, base: str, closed: list[object]) -> None:
        async with session.ws_connect(f"{base}/ws") as ws:
            await ws.close(code=4001, message=b"done")
        async with asyncio.timeout(HANG_SECONDS):
            while not closed:
                await asyncio.sleep(0.01)
        assert closed == [4001]

    asyncio.run(with_echo(gateway, use))


def test_a_17_mib_message_passes_both_ways(gateway: Gateway) -> None:
    async def use(session: aiohttp.ClientSession, base: str, closed: list[object]) -> None:
        message = bytes(range(256)) * (17 * 4096)
        async with session.ws_connect(f"{base}/ws", max_msg_size=64 * 1024 * 1024) as ws:
            await ws.send_bytes(message)
            assert (await ws.receive()).data == message

    asyncio.run(with_echo(gateway, use))


def test_a_refused_handshake_passes_its_status_and_body(gateway: Gateway) -> None:
    async def use(session: aiohttp.ClientSession, base: str, closed: list[object]) -> None:
        headers = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
        async with session.get(f"{base}/refuse", headers=headers) as answer:
            assert (answer.status, await answer.text(), answer.headers["X-Why"]) == (403, "members only", "yes")

    asyncio.run(with_echo(gateway, use))


def test_no_compression_is_agreed_on_the_inner_hop(gateway: Gateway) -> None:
    async def use(session: aiohttp.ClientSession, base: str, closed: list[object]) -> None:
        async with session.ws_connect(f"{base}/ws", compress=15) as ws:
            assert ws.compress == 0

    asyncio.run(with_echo(gateway, use))
