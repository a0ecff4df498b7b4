"""One address does not use up the files of the data plane, whatever it does with its connections."""

from __future__ import annotations

import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from pytest_django import Settings

from jobs.models import Job
from runtime_proxy import connections, open_files
from runtime_proxy.connections import CONNECTIONS, Connections, party_of
from tests.runtime_proxy.data_plane import DataPlane, until
from tests.runtime_proxy.raw_sockets import RawApp, RawBrowser, closing
from tests.runtime_proxy.raw_sockets import app as app
from tests.runtime_proxy.upstreams import Asked, Upstream

RunSpace = Callable[..., Job]
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
ME = "127.0.0.1"


@pytest.fixture
def three(settings: Settings) -> None:
    settings.OPENFACE_RUN_MAX_CONNECTIONS_PER_ADDRESS = 3


def hears(client: socket.socket) -> bytes:
    """What comes until the server closes."""
    heard = b""
    while piece := client.recv(65536):
        heard += piece
    return heard


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET /run/al",
        b"POST /healthz HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n",
    ],
    ids=["idle", "half a head", "half a body"],
)
def test_what_an_address_leaves_open_is_bounded(three: None, data_plane: DataPlane, said: bytes):
    with ExitStack() as open_:
        for _ in range(3):
            open_.enter_context(data_plane.connect()).sendall(said)
        until(lambda: CONNECTIONS.of(ME) == 3)

        with data_plane.connect() as one_more:
            refused = hears(one_more)

    assert refused.startswith(b"HTTP/1.1 429 ")
    until(lambda: CONNECTIONS.of(ME) == 0)
    assert data_plane.raw(HEALTH).startswith(b"HTTP/1.1 200 ")


def test_a_websocket_counts_until_it_is_over(three: None, run_space: RunSpace, app: RawApp, data_plane: DataPlane):
    run_space(port=app.port)

    for _ in range(4):
        with RawBrowser(data_plane) as browser:
            assert browser.status == 101
            assert CONNECTIONS.of(ME) == 1
            browser.say(closing(1000, masked=True))
            app.say(closing(1000, masked=False))
            browser.hear_all()
        until(lambda: CONNECTIONS.of(ME) == 0)


def test_a_refused_websocket_counts_until_it_is_over(three: None, run_space: RunSpace, data_plane: DataPlane):
    for _ in range(4):
        with RawBrowser(data_plane, path=b"nowhere") as browser:
            assert browser.status >= 400
        until(lambda: CONNECTIONS.of(ME) == 0)


@pytest.fixture
def waiting_app(upstream: Upstream) -> Iterator[Upstream]:
    """An app that answers nobody before he leaves."""

    async def wait(asked: Asked) -> None:
        await asked.reader.read()

    upstream.handler = wait
    yield upstream


def test_a_trusted_proxy_is_not_one_visitor_but_those_it_reports(
    three: None, settings: Settings, run_space: RunSpace, waiting_app: Upstream, data_plane: DataPlane
):
    settings.OPENFACE_TRUSTED_PROXIES = [ME]
    run_space()

    def asked_for(visitor: bytes, target: bytes = b"/run/alice/app/") -> bytes:
        return b"GET " + target + b" HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 6.6.6.6, " + visitor + b"\r\n\r\n"

    with ExitStack() as open_:
        for _ in range(5):
            open_.enter_context(data_plane.connect())  # kept for later by the proxy
        for _ in range(3):
            open_.enter_context(data_plane.connect()).sendall(asked_for(b"198.51.100.4"))
        until(lambda: len(waiting_app.seen) == 3)
        one_more = data_plane.raw(asked_for(b"198.51.100.4", b"/healthz"))
        somebody_else = open_.enter_context(data_plane.connect())
        somebody_else.sendall(asked_for(b"198.51.100.5", b"/healthz"))

        assert one_more.startswith(b"HTTP/1.1 429 ")
        assert somebody_else.recv(65536).startswith(b"HTTP/1.1 200 ")
        assert CONNECTIONS.of("198.51.100.5") == 0  # answered: its connection is the proxy's again
    until(lambda: CONNECTIONS.of("198.51.100.4") == 0)


def test_a_websocket_through_a_trusted_proxy_counts_for_who_it_reports(
    three: None, settings: Settings, run_space: RunSpace, app: RawApp, data_plane: DataPlane
):
    settings.OPENFACE_TRUSTED_PROXIES = [ME]
    run_space(port=app.port)
    reported = b"X-Forwarded-For: 198.51.100.4"

    with RawBrowser(data_plane, reported) as browser:
        assert browser.status == 101
        assert (CONNECTIONS.of("198.51.100.4"), CONNECTIONS.of(ME)) == (1, 0)
        app.say(closing(1000, masked=False))
        browser.say(closing(1000, masked=True))
        browser.hear_all()
    until(lambda: CONNECTIONS.of("198.51.100.4") == 0)


@pytest.mark.parametrize(
    ("address", "party"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:aaaa::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2::9]", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("unknown", "unknown"),
        ("x" * 60_000, "x" * connections.LONGEST_ADDRESS),
    ],
)
def test_who_an_address_counts_as(address: str, party: str):
    assert party_of(address) == party


def test_nobody_has_more_than_a_quarter_of_the_files(settings: Settings):
    settings.OPENFACE_RUN_MAX_CONNECTIONS_PER_ADDRESS = 0
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (400, before[1]))
    try:
        assert connections.most() == 100
        here = Connections()
        assert [here.take("me") for _ in range(101)] == [True] * 100 + [False]
        assert here.take("you")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_too_few_files_for_the_settings_are_told(settings: Settings, caplog: pytest.LogCaptureFixture):
    settings.OPENFACE_RUN_MAX_PER_SPACE = 10**9
    open_files.warn_below(connections.files_needed())
    assert "OPENFACE_RUN_MAX_PER_SPACE" in caplog.text

    caplog.clear()
    settings.OPENFACE_RUN_MAX_PER_SPACE = 1
    open_files.warn_below(connections.OTHER_FILES // 2)
    assert caplog.text == ""
