"""Who may open a WebSocket to an app, and what each side hears of the other's handshake."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from pytest_django import Settings

from jobs.models import Job
from spaces.models import Space
from spaces.origin import runtime_origin
from tests.runtime_proxy.conftest import PORTAL
from tests.runtime_proxy.data_plane import DataPlane, until
from tests.runtime_proxy.raw_sockets import HANDSHAKE, KEY, RawApp, RawBrowser, accepting
from tests.runtime_proxy.raw_sockets import app as app
from tests.runtime_proxy.upstreams import Asked, Upstream

RunSpace = Callable[..., Job]
SignIn = Callable[[User], str]


def test_the_browsers_own_handshake_reaches_the_app(data_plane: DataPlane, run_space: RunSpace, app: RawApp):
    run_space(port=app.port)

    more = (b"Sec-WebSocket-Protocol: a, b", b"Sec-WebSocket-Extensions: permessage-deflate")
    with RawBrowser(data_plane, *more, path=b"/a%2Fb//ws?x=%20") as browser:
        assert browser.status == 101
        assert browser.field(b"sec-websocket-accept") == [b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="]  # of RFC 6455 §1.3
        assert browser.field(b"sec-websocket-extensions") == []

    head = app.heads[0]
    assert head.startswith(b"GET /a%2Fb//ws?x=%20 HTTP/1.1\r\n")
    lines = {line.lower() for line in head.split(b"\r\n")}
    assert b"sec-websocket-key: " + KEY.lower() in lines
    assert b"sec-websocket-version: 13" in lines
    assert b"sec-websocket-protocol: a, b" in lines
    assert not [line for line in lines if line.startswith(b"sec-websocket-extensions")]


@pytest.mark.parametrize(
    ("said", "heard"),
    [([b"Sec-WebSocket-Protocol: b"], [b"b"]), ([], []), ([b"X: 1", b"Set-Cookie: openface_x=1"], [])],
)
def test_the_app_chooses_a_subprotocol_or_none(
    data_plane: DataPlane, run_space: RunSpace, app: RawApp, said: list[bytes], heard: list[bytes]
):
    run_space(port=app.port)
    app.accept = lambda head: accepting(head, *said)

    with RawBrowser(data_plane, b"Sec-WebSocket-Protocol: a, b") as browser:
        assert browser.status == 101
        assert browser.field(b"sec-websocket-protocol") == heard
        assert browser.field(b"set-cookie") == []


@pytest.mark.parametrize(
    "accept",
    [
        lambda head: accepting(head.replace(b"Sec-WebSocket-Key: ", b"X: ") + b"\r\nSec-WebSocket-Key: other"),
        lambda head: accepting(head, b"Sec-WebSocket-Protocol: c"),
        lambda head: accepting(head, b"Sec-WebSocket-Protocol: a", b"Sec-WebSocket-Protocol: b"),
        lambda head: accepting(head, b"Sec-WebSocket-Extensions: permessage-deflate"),
        lambda head: accepting(head).replace(b"Upgrade: websocket", b"Upgrade: other"),
    ],
    ids=["another key", "not offered", "two", "an extension", "another protocol"],
)
def test_what_is_no_answer_to_the_handshake_is_a_502(
    data_plane: DataPlane, run_space: RunSpace, app: RawApp, accept: Callable[[bytes], bytes]
):
    run_space(port=app.port)
    app.accept = lambda head: accept(head.replace(b"sec-websocket-key: ", b"Sec-WebSocket-Key: "))

    with RawBrowser(data_plane, b"Sec-WebSocket-Protocol: a, b") as browser:
        assert browser.status == 502
    until(lambda: app.ended)


@pytest.mark.parametrize(
    ("handshake", "status"),
    [
        (HANDSHAKE.replace(b": 13", b": 8"), 426),
        (HANDSHAKE.replace(b"Sec-WebSocket-Version: 13\r\n", b""), 400),
        (HANDSHAKE.replace(KEY, b"c2hvcnQ="), 400),
        (HANDSHAKE.replace(KEY, b"no base64 at all"), 400),
        (HANDSHAKE + b"Sec-WebSocket-Key: " + KEY + b"\r\n", 400),
        (HANDSHAKE.replace(b"Key", b"Guess"), 400),
        (HANDSHAKE + b"Content-Length: 1\r\n", 400),
    ],
    ids=["version 8", "no version", "short key", "no base64", "two keys", "no key", "a body"],
)
def test_a_wrong_handshake_is_refused_at_once(
    data_plane: DataPlane, run_space: RunSpace, app: RawApp, handshake: bytes, status: int
):
    run_space(port=app.port)

    with RawBrowser(data_plane, handshake=handshake) as browser:
        assert browser.status == status
        assert browser.field(b"sec-websocket-version") == ([b"13"] if status == 426 else [])
    assert app.heads == []


def test_a_refusal_is_passed_on_piece_by_piece(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space()

    async def refuse(asked: Asked) -> None:
        await asked.answer(b"HTTP/1.1 599 Odd\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")
        await asked.reader.read(1)  # the browser leaves

    upstream.handler = refuse

    with RawBrowser(data_plane) as browser:
        assert browser.status == 599
        assert browser.hear(9) == b"4\r\nhalf\r\n"
    until(lambda: upstream.open_connections == 0)


def test_a_refusal_that_breaks_off_is_not_taken_for_whole(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream
):
    run_space()

    async def refuse(asked: Asked) -> None:
        await asked.answer(b"HTTP/1.1 403 No\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")
        asked.writer.close()

    upstream.handler = refuse

    with RawBrowser(data_plane) as browser:
        assert browser.status == 403
        assert browser.hear_all() == b"4\r\nhalf\r\n"


class TestWhoMay:
    """A session travels with the WebSockets of every page; only Origin says whose page it is."""

    @pytest.mark.parametrize(
        ("origin", "status"),
        [
            (None, 101),  # a program
            (PORTAL, 101),
            ("{runtime}", 101),
            ("http://evil.example", 401),
            ("https://{host}.evil.example", 401),
            ("null", 401),
            ("", 401),
        ],
    )
    def test_a_session_counts_for_our_own_pages_only(
        self,
        data_plane: DataPlane,
        run_space: RunSpace,
        app: RawApp,
        signed_in: SignIn,
        origin: str | None,
        status: int,
    ):
        run_space(port=app.port, visibility="private")
        more = [b"Cookie: " + signed_in(User.objects.create_user("alice")).encode()]
        if origin is not None:
            said = origin.format(runtime=f"http://{data_plane.host}", host=data_plane.host)
            more.append(b"Origin: " + said.encode())

        with RawBrowser(data_plane, *more) as browser:
            assert browser.status == status

    def test_anybody_may_open_one_to_a_public_space(self, data_plane: DataPlane, run_space: RunSpace, app: RawApp):
        run_space(port=app.port)

        for origin in (b"http://elsewhere.example", b"null"):
            with RawBrowser(data_plane, b"Origin: " + origin) as browser:
                assert browser.status == 101
        assert b"\r\norigin: null" in app.heads[1]

    def test_spaces_with_hosts_of_their_own_are_not_reached_by_others(
        self, data_plane: DataPlane, run_space: RunSpace, app: RawApp, settings: Settings
    ):
        run_space(port=app.port)
        settings.OPENFACE_RUNTIME_ORIGIN = "http://{space}.run.localhost:8091"
        own = runtime_origin(Space.objects.get()).partition("://")[2]

        for host, status in (("bob-other-12345678.run.localhost:8091", 404), ("run.localhost", 404), (own, 101)):
            with RawBrowser(data_plane, host=host) as browser:
                assert browser.status == status

    def test_one_visitor_leaves_room_for_others(
        self, settings: Settings, run_space: RunSpace, app: RawApp, request: pytest.FixtureRequest
    ):
        settings.OPENFACE_RUN_MAX_PER_VISITOR = 1
        data_plane: DataPlane = request.getfixturevalue("data_plane")
        run_space(port=app.port)

        with RawBrowser(data_plane) as first:
            assert first.status == 101
            with RawBrowser(data_plane) as second:
                assert second.status == 429

        def may_again() -> bool:
            with RawBrowser(data_plane) as third:
                return third.status == 101

        until(may_again)
