"""What only a browser can judge, in Chromium: cookies, redirects, events and WebSockets of an app in a container."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from tests.browser.conftest import CHROMIUM_ARGS
from tests.e2e_fidelity.chain import Chain
from tests.runtime_proxy.data_plane import until
from tests.runtime_proxy.test_websocket import App
from tests.runtime_proxy.upstreams import Asked, Handler, Loop, Upstream, three_events

pytestmark = pytest.mark.browser

PAGE = b"<!doctype html><title>An app</title><link rel=icon href=data:,><body>hello"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as driver:
        path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
        browser = driver.chromium.launch(executable_path=path, args=[*CHROMIUM_ARGS, "--no-proxy-server"])
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """A fresh visitor's page."""
    context = chromium.new_context(locale="en-US")
    context.set_default_timeout(20_000)
    yield context.new_page()
    context.close()


class Site:
    """An app with a page at every path but those that a test says something about."""

    def __init__(self, upstream: Upstream) -> None:
        self.paths: dict[bytes, Handler] = {}
        self.asked: list[tuple[bytes, bytes, bytes | None]] = []
        """Line without version, body, and cookies of each request."""
        upstream.handler = self._answer

    def redirects(self, path: bytes, location: bytes, status: int = 302) -> None:
        self.paths[path] = lambda asked: asked.answer(
            b"HTTP/1.1 %d There\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n" % (status, location)
        )

    async def _answer(self, asked: Asked) -> None:
        self.asked.append((asked.line.rpartition(b" ")[0], await asked.body(), asked.one(b"cookie")))
        await self.paths.get(asked.target, lambda asked: asked.ok(PAGE, b"Content-Type: text/html"))(asked)


@pytest.fixture
def site(run_space: Callable[..., None], upstream: Upstream) -> Site:
    run_space()
    return Site(upstream)


@pytest.fixture
def home(chain: Chain) -> str:
    """The app's address, without its last slash."""
    return f"{chain.world.data}/run/alice/app"


def test_an_apps_cookies_come_back_to_it_and_go_nowhere_else(
    page: Page, site: Site, home: str, run_space: Callable[..., None]
):
    run_space("alice/kept", prefix="keep", rewrite_host="true")
    lines = [b'a="x|y=%3D"; Path=/', b"b=2; HttpOnly; SameSite=Strict", b"c=3; Path=/deep; Domain=localhost"]
    site.paths[b"/set"] = lambda asked: asked.ok(PAGE, *(b"Set-Cookie: " + line for line in lines))

    for path in ("/set", "/", "/deep/er"):
        page.goto(home + path)
    page.goto(home.replace("alice/app", "alice/kept") + "/")

    cookies = [set((cookies or b"").split(b"; ")) for _, _, cookies in site.asked]
    both = {b'a="x|y=%3D"', b"b=2"}
    assert cookies == [{b""}, both, {*both, b"c=3"}, {b""}]
    assert page.evaluate("document.cookie") == ""


def test_the_app_can_take_a_cookie_back(page: Page, site: Site, home: str):
    site.paths[b"/set"] = lambda asked: asked.ok(PAGE, b"Set-Cookie: a=1; Path=/")
    site.paths[b"/unset"] = lambda asked: asked.ok(PAGE, b"Set-Cookie: a=; Path=/; Max-Age=0")

    for path in ("/set", "/unset", "/"):
        page.goto(home + path)

    assert [cookies for _, _, cookies in site.asked] == [None, b"a=1", None]


@pytest.mark.parametrize(
    ("location", "seen"),
    [
        (b"/there?x=1#y", b"/there?x=1"),
        (b"there", b"/at/there"),
        (b"../there/", b"/there/"),
        (b"?x", b"/at/start?x"),
        (b"http://localhost:7860/there", b"/there"),
        (b"/run/alice/app/there", b"/there"),
        (b"//{host}/there", b"/there"),
        (b"/a%2F..%2Fb//c", b"/a%2F..%2Fb//c"),
    ],
)
def test_a_redirect_stays_within_the_app(page: Page, site: Site, home: str, chain: Chain, location: bytes, seen: bytes):
    host = chain.world.data.partition("//")[2].encode()
    site.redirects(b"/at/start", location.replace(b"{host}", host))

    page.goto(home + "/at/start")

    assert page.url.startswith(home + seen.decode())
    assert site.asked[-1][0] == b"GET " + seen


def test_a_redirect_keeps_what_was_sent_where_the_app_says_so(page: Page, site: Site, home: str):
    site.redirects(b"/form", b"/form2", 307)
    page.goto(home + "/")

    status = page.evaluate("fetch('form', {method: 'PUT', body: 'words'}).then(answer => answer.status)")

    assert status == 200
    assert [(line, body) for line, body, _ in site.asked[1:]] == [(b"PUT /form", b"words"), (b"PUT /form2", b"words")]


def test_each_event_is_there_before_the_next_is_sent(page: Page, site: Site, home: str):
    read_by_client = threading.Semaphore(0)
    site.paths[b"/events"] = three_events(read_by_client)
    page.goto(home + "/")

    page.evaluate(
        """() => {
            window.got = [];
            window.source = new EventSource("events");
            source.onmessage = event => got.push(event.data);
            source.onerror = () => source.close();  // at the end, or it would ask anew
        }"""
    )

    for number in range(3):
        page.wait_for_function(f"got.length == {number + 1}")
        read_by_client.release()
    page.wait_for_function("source.readyState == EventSource.CLOSED")
    assert page.evaluate("got") == ["0", "1", "2"]


def test_a_page_that_is_left_ends_what_it_asked_for(page: Page, site: Site, home: str):
    begun, ended = threading.Event(), threading.Event()

    async def for_ever(asked: Asked) -> None:
        begun.set()
        with suppress(ConnectionError):
            await asked.reader.read(1)
        ended.set()

    site.paths[b"/slow"] = for_ever
    page.goto(home + "/")
    page.evaluate("void fetch('slow').catch(() => 0)")
    assert begun.wait(10)

    page.goto("about:blank")

    assert ended.wait(10)


class TestWebSockets:
    @pytest.fixture
    def app(self, run_space: Callable[..., None]) -> Iterator[App]:
        loop = Loop()
        app = App()
        loop.run(app.start())
        run_space("alice/app", port=app.port)
        yield app
        loop.run(app.stop())
        loop.close()

    def speak(self, page: Page, chain: Chain, script: str) -> object:
        """Run the script on a page of the data plane's origin, with `socket` open to the app."""
        page.goto(chain.world.data + "/run-static/openface.css")
        address = chain.world.data.replace("http", "ws", 1) + "/run/alice/app/ws"
        return page.evaluate(
            f"""async () => {{
                const socket = new WebSocket("{address}", ["first", "second"]);
                socket.binaryType = "arraybuffer";
                await new Promise((good, bad) => {{ socket.onopen = good; socket.onerror = bad; }});
                const next = kind => new Promise(good => {{ socket["on" + kind] = good; }});
                {script}
            }}"""
        )

    def test_messages_pass_and_the_app_chooses_the_protocol(self, page: Page, chain: Chain, app: App):
        got = self.speak(
            page,
            chain,
            """const heard = [];
            for (const message of ["héllo あ", "", "x".repeat(200000), new Uint8Array([0, 255, 7])]) {
                socket.send(message);
                const data = (await next("message")).data;
                heard.push(typeof data == "string" ? data : [...new Uint8Array(data)]);
            }
            return [socket.protocol, socket.extensions, heard];""",
        )

        assert got == ["second", "", ["héllo あ", "", "x" * 200000, [0, 255, 7]]]

    def test_either_side_learns_how_the_other_closed(self, page: Page, chain: Chain, app: App):
        ends: list[tuple[int, str]] = []

        async def close_when_told(connection: ServerConnection) -> None:
            if await connection.recv() == "close":
                await connection.close(4001, "せっけん")
                return
            with pytest.raises(ConnectionClosed) as closed:
                await connection.recv()
            assert closed.value.rcvd is not None
            ends.append((closed.value.rcvd.code, closed.value.rcvd.reason))

        app.handle = close_when_told

        told = 'const end = await next("close"); return [end.code, end.reason, end.wasClean];'
        assert self.speak(page, chain, f'socket.send("close"); {told}') == [4001, "せっけん", True]
        assert self.speak(page, chain, f'socket.send("you"); socket.close(3456, "bye"); {told}') == [3456, "bye", True]
        until(lambda: ends == [(3456, "bye")])
