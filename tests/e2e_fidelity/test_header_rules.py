"""The rules for header fields, asked of the processes and a container: the tables of the tests of the rules."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator

import pytest

from tests.e2e_fidelity.chain import Chain
from tests.runtime_proxy.data_plane import DataPlane
from tests.runtime_proxy.header_tables import (
    COMMANDS,
    HOST,
    LEFT_OF_ONE_HOP,
    LOCATIONS,
    ONE_HOP,
    POLICIES,
    PORTAL,
    PREFIX,
    SCOPES,
    SENT_COOKIES,
    SET_COOKIES,
    SPOOFED,
    told,
)
from tests.runtime_proxy.upstreams import Asked, Upstream

Fields = list[tuple[bytes, bytes]]
ALWAYS = (b"x-accel-buffering", b"no")


class Browser:
    """Asks the app with these fields, or hears it answer with those. One connection for all."""

    def __init__(self, connection: http.client.HTTPConnection, upstream: Upstream) -> None:
        self._connection, self._upstream = connection, upstream

    def ask(self, *fields: tuple[bytes, bytes], body: bytes | None = None, path: str = "/") -> Fields:
        """Ask with these fields and no others; return those that the app gets, names in lower case."""

        async def read(asked: Asked) -> None:
            await asked.body()
            await asked.ok()

        self._upstream.handler = read
        connection = self._connection
        connection.putrequest("GET", PREFIX.decode() + path, skip_host=True, skip_accept_encoding=True)
        for name, value in [(b"Host", HOST), *fields]:
            connection.putheader(name, value)
        connection.endheaders(body)
        connection.getresponse().read()
        return [(name.lower(), value) for name, value in self._upstream.seen[-1].headers]

    def hear(self, *fields: tuple[bytes, bytes], status: bytes = b"200 OK") -> Fields:
        """Let the app answer with these fields; return those that the browser gets, but for the length."""

        async def answer(asked: Asked) -> None:
            lines = [b"HTTP/1.1 " + status, *(name + b": " + value for name, value in fields)]
            if (b"transfer-encoding", b"chunked") in fields:
                await asked.answer(b"\r\n".join([*lines, b"", b"0", b"", b""]))
            else:
                await asked.answer(b"\r\n".join([*lines, b"Content-Length: 0", b"", b""]))

        self._upstream.handler = answer
        self._connection.request("GET", PREFIX.decode() + "/", headers={"Host": HOST.decode()})
        response = self._connection.getresponse()
        response.read()
        got = [(name.encode(), value.encode("latin-1")) for name, value in response.headers.raw_items()]
        return [field for field in got if field[0] not in (b"content-length", b"transfer-encoding")]


@pytest.fixture
def browser(data_plane: DataPlane, run_space: Callable[..., None], upstream: Upstream) -> Iterator[Browser]:
    run_space()
    connection = http.client.HTTPConnection("127.0.0.1", data_plane.port, timeout=20)
    yield Browser(connection, upstream)
    connection.close()


@pytest.fixture
def own_policy(chain: Chain) -> tuple[bytes, bytes]:
    """What is added to every answer."""
    return b"content-security-policy", b"frame-ancestors 'self' " + chain.world.web.encode()


@pytest.mark.parametrize("name", [b"Location", b"Content-Location"])
@pytest.mark.parametrize(("location", "expected"), LOCATIONS)
def test_a_location_gets_the_prefix_once(
    browser: Browser, own_policy: tuple[bytes, bytes], name: bytes, location: bytes, expected: bytes
):
    assert browser.hear((name, location), status=b"302 Found") == [(name.lower(), expected), own_policy, ALWAYS]


@pytest.mark.parametrize(("cookie", "expected"), SET_COOKIES)
def test_a_cookie_of_the_app_stays_below_its_prefix(browser: Browser, cookie: bytes, expected: bytes | None):
    kept = [value for name, value in browser.hear((b"Set-Cookie", cookie)) if name == b"set-cookie"]

    assert kept == ([] if expected is None else [expected])


@pytest.mark.parametrize(("cookies", "expected"), SENT_COOKIES)
def test_platform_cookies_never_reach_an_app(browser: Browser, cookies: bytes, expected: bytes | None):
    assert dict(browser.ask((b"Cookie", cookies))).get(b"cookie") == expected


def test_what_is_meant_for_one_hop_goes_no_further_than_it(browser: Browser, own_policy: tuple[bytes, bytes]):
    framing = [(b"transfer-encoding", b"chunked")]

    got = browser.ask(*ONE_HOP, body=b"0\r\n\r\n")

    # The body's framing is this hop's own.
    assert got == [(b"host", HOST), *LEFT_OF_ONE_HOP, *told(b"127.0.0.1"), *framing]
    assert browser.hear(*ONE_HOP) == [*LEFT_OF_ONE_HOP, own_policy, ALWAYS]


def test_connection_cannot_disown_what_we_rely_on(browser: Browser):
    own = [(b"cookie", b"a=1"), (b"authorization", b"Bearer app")]

    assert browser.ask((b"Connection", b"cookie, authorization, host"), *own)[1:3] == own


def test_nobody_else_speaks_for_us(browser: Browser):
    assert browser.ask(*SPOOFED) == [(b"host", HOST), *told(b"127.0.0.1")]


def test_host_and_origin_are_the_browsers(browser: Browser):
    assert (b"origin", b"null") in browser.ask((b"Origin", b"null"))
    assert (b"origin", b"http://localhost:8091") in browser.ask((b"Origin", b"http://localhost:8091"))


@pytest.mark.parametrize("name", COMMANDS)
def test_an_app_commands_neither_our_origin_nor_a_proxy_in_front(
    browser: Browser, own_policy: tuple[bytes, bytes], name: bytes
):
    assert browser.hear((name, b"x")) == [own_policy, ALWAYS]


@pytest.mark.parametrize(("allowed", "expected"), SCOPES)
def test_a_service_worker_stays_below_its_prefix(
    browser: Browser, own_policy: tuple[bytes, bytes], allowed: bytes, expected: bytes
):
    scope = (b"service-worker-allowed", expected)

    assert browser.hear((b"Service-Worker-Allowed", allowed)) == [scope, own_policy, ALWAYS]


@pytest.mark.parametrize(("policy", "expected"), POLICIES)
def test_the_portal_may_show_an_app_whatever_its_policy_says(
    browser: Browser, chain: Chain, policy: bytes, expected: bytes
):
    told = (b"content-security-policy", expected.replace(PORTAL, chain.world.web.encode()))

    got = browser.hear((b"Content-Security-Policy", policy), (b"X-Frame-Options", b"DENY"))

    assert got[0] == told
    assert b"x-frame-options" not in dict(got)


def test_values_and_their_order_are_kept(browser: Browser, own_policy: tuple[bytes, bytes]):
    fields = [(b"x-b", b"odd\xff \t value"), (b"x-a", b""), (b"x-b", b"2"), (b"server", b"app"), (b"date", b"now")]

    assert browser.hear(*fields) == [*fields, own_policy, ALWAYS]
    assert browser.ask(*fields[:3])[1:4] == fields[:3]


def test_nobody_but_the_app_says_who_serves_and_when(browser: Browser):
    got = dict(browser.hear())

    assert not {b"server", b"date", b"via"} & got.keys()


class TestAnAppWithWishes:
    """A Space whose README says `prefix: keep` and `rewrite_host: true`."""

    PREFIX = b"/run/alice/kept"

    @pytest.fixture(autouse=True)
    def _kept(self, run_space: Callable[..., None]) -> None:
        run_space("alice/kept", prefix="keep", rewrite_host="true")

    def test_it_sees_its_prefix(self, data_plane: DataPlane, upstream: Upstream):
        data_plane.get("/run/alice/kept/a%2Fb//../c?x=1")

        assert upstream.seen[-1].target == b"/run/alice/kept/a%2Fb//../c?x=1"
        assert upstream.seen[-1].one(b"x-forwarded-prefix") == self.PREFIX

    def test_it_is_called_localhost(self, data_plane: DataPlane, upstream: Upstream):
        data_plane.get("/run/alice/kept/", Origin=f"http://{data_plane.host}")

        asked = upstream.seen[-1]
        assert (asked.one(b"host"), asked.one(b"origin")) == (b"localhost:7860", b"http://localhost:7860")
        assert asked.one(b"x-forwarded-host") == data_plane.host.encode()

    def test_its_own_links_are_left_alone(self, data_plane: DataPlane, upstream: Upstream):
        upstream.handler = lambda asked: asked.answer(
            b"HTTP/1.1 302 Found\r\nLocation: http://localhost:7860/run/alice/kept/lab\r\nContent-Length: 0\r\n\r\n"
        )

        assert data_plane.get("/run/alice/kept/").one("location") == "/run/alice/kept/lab"
