"""The proxy that the compose files come with changes nothing of what the data plane promises. With a real nginx."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable

import pytest
from websockets.sync.client import connect

from jobs.models import Job
from tests.runtime_proxy.data_plane import DataPlane
from tests.runtime_proxy.nginx import HOST, PROXY
from tests.runtime_proxy.upstreams import Asked, Upstream, three_events

pytestmark = pytest.mark.nginx

RunSpace = Callable[..., Job]


def raw(nginx: DataPlane, target: str, *headers: str) -> bytes:
    lines = [f"GET {target} HTTP/1.1", f"Host: {HOST}", "Connection: close", *headers, "", ""]
    return nginx.raw("\r\n".join(lines).encode())


def test_a_path_arrives_as_it_was_spelt(nginx: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space()
    spellings = ["/a%2Fb/%2e%2e/c", "//a//b/", "/../x", "/%E3%81%82?x=%20+&y=a%26b", "/a;b=c/d,e!$'()*:@~"]

    for rest in spellings:
        raw(nginx, f"/run/alice/app{rest}")

    assert [asked.target.decode() for asked in upstream.seen] == spellings


def test_the_app_learns_who_asked_and_how(nginx: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space()

    raw(nginx, "/run/alice/app/", "X_odd: kept", "Origin: http://run.openface.example", "X-Forwarded-For: 6.6.6.6")

    asked = upstream.seen[0]
    assert asked.one(b"host") == HOST.encode()
    assert asked.one(b"x_odd") == b"kept"
    assert asked.one(b"x-forwarded-proto") == b"http"
    assert asked.one(b"x-forwarded-for") == f"6.6.6.6, 127.0.0.1, {PROXY}".encode()  # a claim, the caller, nginx


def test_events_come_one_by_one(nginx: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space()
    read_by_client = threading.Semaphore(0)
    upstream.handler = three_events(read_by_client)
    client = http.client.HTTPConnection("127.0.0.1", nginx.port, timeout=10)
    client.request("GET", "/run/alice/app/events", headers={"Host": HOST, "Accept-Encoding": "gzip"})
    answer = client.getresponse()

    for number in range(3):
        assert answer.read1() == b"data: %d\n\n" % number
        read_by_client.release()

    assert answer.read() == b""
    client.close()


def test_an_upload_begins_before_it_has_ended(nginx: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space()
    first_came = threading.Event()

    async def read(asked: Asked) -> None:
        assert await asked.reader.readexactly(5) == b"first"
        first_came.set()
        assert await asked.reader.readexactly(4) == b"last"
        await asked.ok()

    upstream.handler = read

    with nginx.connect() as client:
        client.sendall(f"POST /run/alice/app/up HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 9\r\n\r\nfirst".encode())
        assert first_came.wait(10)
        client.sendall(b"last")
        assert client.recv(4096).startswith(b"HTTP/1.1 200")


def test_an_app_gives_no_orders_to_the_proxy(nginx: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space()
    orders = [b"X-Accel-Redirect: /etc/passwd", b"X-Accel-Limit-Rate: 1", b"X-Accel-Expires: 3600"]
    upstream.handler = lambda asked: asked.ok(b"the app's own", *orders, b"Server: mine", b"Date: today")

    head, _, body = raw(nginx, "/run/alice/app/").partition(b"\r\n\r\n")

    assert (head.split(b"\r\n")[0], body) == (b"HTTP/1.1 200 OK", b"the app's own")
    names = [line.split(b":")[0].lower() for line in head.split(b"\r\n")[1:]]
    assert not [name for name in names if name.startswith(b"x-accel")]
    assert (names.count(b"server"), names.count(b"date")) == (1, 1)


def test_websockets_open_and_talk(nginx: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space()

    async def echo_one_frame(asked: Asked) -> None:
        assert asked.one(b"upgrade") == b"websocket"
        key = asked.one(b"sec-websocket-key")
        assert key is not None
        await asked.answer(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: %b\r\n\r\n" % accept_of(key)
        )
        head = await asked.reader.readexactly(6)
        masked = await asked.reader.readexactly(head[1] & 0x7F)
        text = bytes(byte ^ head[2 + place % 4] for place, byte in enumerate(masked))
        await asked.answer(bytes((0x81, len(text))) + text + b"\x88\x02\x03\xe8")
        await asked.reader.read()

    upstream.handler = echo_one_frame

    with connect(f"ws://{HOST}/run/alice/app/ws", sock=nginx.connect(), proxy=None, compression=None) as socket_:
        socket_.send("hello")
        assert socket_.recv(timeout=10) == "hello"


def accept_of(key: bytes) -> bytes:
    from websockets.utils import accept_key

    return accept_key(key.decode()).encode()
