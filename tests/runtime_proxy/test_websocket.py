"""WebSockets through the data plane: messages, closing, refusals, limits."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.http11 import Request, Response
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from jobs import notices
from jobs.models import Job
from runtime_proxy import watch, websocket
from runtime_proxy.close_codes import BAD_GATEWAY, NO_LONGER_ADMITTED
from spaces.models import LocalRepository
from tests.factories import WorkerFactory
from tests.runtime_proxy.data_plane import DataPlane, refused_handshake, settled, until
from tests.runtime_proxy.upstreams import Asked, Loop, Upstream

RunSpace = Callable[..., Job]
MIB = 1024 * 1024


class App:
    """A WebSocket app behind the gateway's address; the test says what it does with a connection."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.open = 0
        self.handle: Callable[[ServerConnection], Awaitable[None]] = self.echo
        self.refusal: Response | None = None
        self.port = 0
        self._server: Server

    async def start(self) -> None:
        self._server = await serve(
            self._serve,
            "127.0.0.1",
            0,
            select_subprotocol=lambda _, offered: Subprotocol("second") if "second" in offered else None,
            process_request=self._greet,
            max_size=64 * MIB,
            compression=None,
            ping_interval=None,
            max_queue=1,
            close_timeout=1,
        )
        self.port = next(iter(self._server.sockets)).getsockname()[1]

    async def stop(self) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _greet(self, connection: ServerConnection, request: Request) -> Response | None:
        self.requests.append(request)
        return self.refusal

    async def _serve(self, connection: ServerConnection) -> None:
        self.open += 1
        try:
            await self.handle(connection)
        finally:
            self.open -= 1

    @staticmethod
    async def echo(connection: ServerConnection) -> None:
        async for message in connection:
            await connection.send(message)


@pytest.fixture
def app() -> Iterator[App]:
    loop = Loop()
    app = App()
    loop.run(app.start())
    yield app
    loop.run(app.stop())
    loop.close()


@pytest.fixture
def dial(data_plane: DataPlane, run_space: RunSpace, app: App) -> Callable[..., ClientConnection]:
    """Run the app as alice/app, and open WebSockets to it."""
    run_space(port=app.port)

    def open_one(path: str = "/ws", **wishes: Any) -> ClientConnection:
        address = f"ws://{data_plane.host}/run/alice/app{path}"
        return connect(address, proxy=None, max_size=64 * MIB, compression=None, **wishes)

    return open_one


def test_text_and_binary_messages_pass_both_ways(dial: Callable[..., ClientConnection], app: App):
    with dial("/a%2Fb//ws?x=1") as client:
        for message in ("héllo", b"\x00\xff", "", b""):
            client.send(message)
            assert client.recv(timeout=10) == message

    assert app.requests[0].path == "/a%2Fb//ws?x=1"


def test_a_message_of_17_mib_passes_both_ways(dial: Callable[..., ClientConnection]):
    message = bytes(range(256)) * (17 * MIB // 256)

    with dial() as client:
        client.send(message)
        assert client.recv(timeout=30) == message


def test_the_app_chooses_the_subprotocol(dial: Callable[..., ClientConnection], app: App):
    with dial(subprotocols=["first", "second"]) as client:
        assert client.subprotocol == "second"

    assert app.requests[0].headers["Sec-WebSocket-Protocol"] == "first, second"


def test_headers_of_the_handshake_are_the_browsers(
    dial: Callable[..., ClientConnection], app: App, data_plane: DataPlane
):
    headers = {"Cookie": "a=1; openface_run=x", "X-Mine": "1", "X-OpenFace-Runtime": "guess"}

    with dial(additional_headers=headers, origin="http://somewhere"):
        pass

    got = app.requests[0].headers
    assert (got["Host"], got["Origin"], got["Cookie"], got["X-Mine"]) == (
        data_plane.host,
        "http://somewhere",
        "a=1",
        "1",
    )
    assert got["X-Forwarded-Prefix"] == "/run/alice/app"
    assert "X-OpenFace-Runtime" not in got
    assert "Sec-WebSocket-Extensions" not in got


@pytest.mark.parametrize(("code", "reason"), [(1000, ""), (1001, "bye"), (3001, "せっけん"), (4999, "x" * 123)])
def test_the_browser_learns_how_the_app_closed(dial: Callable[..., ClientConnection], app: App, code: int, reason: str):
    async def close(connection: ServerConnection) -> None:
        await connection.close(code, reason)

    app.handle = close

    with dial() as client, pytest.raises(ConnectionClosed) as closed:
        client.recv(timeout=10)

    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (code, reason)


@pytest.mark.parametrize(("code", "reason"), [(1000, "done"), (4001, "せっけん")])
def test_the_app_learns_how_the_browser_closed(dial: Callable[..., ClientConnection], app: App, code: int, reason: str):
    ends: list[tuple[int, str]] = []

    async def listen(connection: ServerConnection) -> None:
        try:
            await connection.recv()
        except ConnectionClosed as closed:
            assert closed.rcvd is not None
            ends.append((closed.rcvd.code, closed.rcvd.reason))

    app.handle = listen

    with dial() as client:
        client.close(code, reason)

    until(lambda: ends == [(code, reason)])


def test_a_browser_that_vanishes_ends_the_apps_connection(dial: Callable[..., ClientConnection], app: App):
    with dial() as client:
        client.send("hello")
        assert client.recv(timeout=10) == "hello"

        client.socket.shutdown(socket.SHUT_RDWR)

        until(lambda: app.open == 0)


def test_an_app_that_vanishes_ends_the_browsers_connection(dial: Callable[..., ClientConnection], app: App):
    async def vanish(connection: ServerConnection) -> None:
        connection.transport.abort()

    app.handle = vanish

    with dial() as client, pytest.raises(ConnectionClosed) as closed:
        client.recv(timeout=10)

    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == BAD_GATEWAY


def test_a_refused_handshake_arrives_with_status_and_body(dial: Callable[..., ClientConnection], app: App):
    app.refusal = Response(HTTPStatus.IM_A_TEAPOT, "Teapot", Headers({"X-Why": "tea", "Content-Length": "5"}), b"short")

    with pytest.raises(InvalidStatus) as refused:
        dial()

    response = refused.value.response
    assert (response.status_code, response.headers["X-Why"], response.body) == (418, "tea", b"short")


def test_an_http_answer_to_a_handshake_is_passed_on(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space()
    upstream.handler = lambda asked: asked.ok(
        b"no websocket here", b"Set-Cookie: openface_session=x", b"Set-Cookie: a=1"
    )

    with pytest.raises(InvalidStatus) as refused:
        connect(f"ws://{data_plane.host}/run/alice/app/", proxy=None)

    response = refused.value.response
    assert (response.status_code, response.body) == (200, b"no websocket here")
    assert response.headers.get_all("Set-Cookie") == ["a=1"]


@pytest.mark.inside
def test_a_space_that_does_not_run_refuses_with_503(data_plane: DataPlane, run_space: RunSpace):
    run_space(state="starting")

    with pytest.raises(InvalidStatus) as refused:
        connect(f"ws://{data_plane.host}/run/alice/app/", proxy=None)

    assert refused.value.response.status_code == 503
    assert refused.value.response.headers["Retry-After"] == "3"


@pytest.mark.inside
def test_a_gateway_that_refuses_is_a_502(data_plane: DataPlane, run_space: RunSpace):
    run_space(worker=WorkerFactory.create(name="gpu1", gateway_url="http://127.0.0.1:1"))

    with pytest.raises(InvalidStatus) as refused:
        connect(f"ws://{data_plane.host}/run/alice/app/", proxy=None)

    assert refused.value.response.status_code == 502


@pytest.mark.inside
def test_who_leaves_before_the_app_answers_leaves_nothing_behind(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream
):
    async def never(asked: Asked) -> None:
        await asked.reader.read(1)

    upstream.handler = never
    run_space()
    open_before = sockets_of_this_process()
    request = (
        b"GET /run/alice/app/ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )

    clients = [data_plane.connect() for _ in range(30)]
    for client in clients:
        client.sendall(request)
    until(lambda: upstream.open_connections == 30)
    for client in clients:
        client.close()

    until(lambda: upstream.open_connections == 0)
    until(lambda: sockets_of_this_process() <= open_before + 2)  # the database's own come and go


def test_a_path_that_is_none_of_ours_is_refused_quietly(data_plane: DataPlane, caplog: pytest.LogCaptureFixture):
    for path in ("/", "/ws", "/run", "/git/alice/app.git", "/run/alice"):
        assert refused_handshake(data_plane, path) == 404

    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def sockets_of_this_process() -> int:
    """The browser's side, the data plane, the gateway and the app: all of them live in this process."""
    count = 0
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            count += os.readlink(entry).startswith("socket:")
    return count


def test_a_slow_app_holds_the_browser_back(dial: Callable[..., ClientConnection], app: App):
    go_on = threading.Event()
    got = 0

    async def wait(connection: ServerConnection) -> None:
        nonlocal got
        await asyncio.to_thread(go_on.wait, 30)
        async for _ in connection:
            got += 1

    app.handle = wait
    sent = 0

    def send(client: ClientConnection) -> None:
        nonlocal sent
        for _ in range(256):
            client.send(b"x" * MIB)
            sent += 1

    with dial() as client:
        sender = threading.Thread(target=send, args=(client,))
        sender.start()
        held_at = settled(lambda: sent)
        go_on.set()
        sender.join(30)
        until(lambda: got == 256)

    # Six sockets' buffers, which the kernel grows as it likes, and a few messages in between; a small part of it all.
    assert held_at < 100


def test_who_may_not_look_any_more_is_sent_away(
    dial: Callable[..., ClientConnection], app: App, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(websocket, "RECHECK_SECONDS", 0.2)

    with dial() as client:
        LocalRepository.objects.update(visibility="private")
        notices.publish("access", space=Job.objects.get().space_id)
        with pytest.raises(ConnectionClosed) as closed:
            client.recv(timeout=10)

    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == NO_LONGER_ADMITTED
    until(lambda: app.open == 0)


def test_a_stream_ends_when_its_space_has_moved(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(watch, "RECHECK_SECONDS", 0.2)

    async def for_ever(asked: Asked) -> None:
        await asked.answer(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ntick\r\n")
        await asked.reader.read(1)

    upstream.handler = for_ever
    job = run_space()

    with data_plane.connect() as client:
        client.sendall(b"GET /run/alice/app/ HTTP/1.1\r\nHost: h\r\n\r\n")
        assert client.recv(4096)
        Job.objects.update(state="stopping")
        notices.publish("job", job=job.pk, space=job.space_id)
        while client.recv(4096):
            pass  # ends: without the last chunk

    until(lambda: upstream.open_connections == 0)
