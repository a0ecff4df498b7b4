"""What a page of a Space tries against the portal, its visitor and its neighbours, in a real browser.

The visitor is an operator who is signed in, has the Space's page open, and may read and administer everything.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
from playwright.sync_api import Browser, BrowserContext, Frame, Page, expect

from tests.browser.hostile_world import NEIGHBOUR, PASSWORD, PRIVATE, SPACE, HostileWorld, Way

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]  # the first test of all waits for the installation

EVIL = "evil"
BLOCKED = "chrome-error://chromewebdata/"
SAYS_HELLO = "hello from pid"


@pytest.fixture(autouse=True)
def repositories() -> None:
    """The world has its own; the portal that the other modules share is not needed."""


@pytest.fixture(scope="module")
def world() -> Iterator[HostileWorld]:
    # Not pytest's own directories: those are closed to others, and the database's account passes through.
    with tempfile.TemporaryDirectory(prefix="openface-hostile-") as directory:
        Path(directory).chmod(0o711)
        world = HostileWorld(Path(directory))
        try:
            world.up()
            yield world
        except BaseException:
            print(world.log_tail(200))
            raise
        finally:
            world.down()


@pytest.fixture(scope="module", params=["second-port", "second-host"])
def way(world: HostileWorld, request: pytest.FixtureRequest) -> Way:
    return world.ways[request.param]


@dataclass
class Victim:
    """A browser in which an operator is signed in and has opened the hostile Space."""

    way: Way
    context: BrowserContext
    page: Page  # the Space's page of the portal

    @property
    def app(self) -> Frame:
        """The hostile page in its frame."""
        frame = self.page.frame(url=self.way.app(SPACE))
        assert frame is not None, [frame.url for frame in self.page.frames]
        return frame

    def open(self) -> None:
        self.page.goto(f"{self.way.portal}/spaces/{SPACE}/")
        self.page.frame_locator(".appview iframe").get_by_role("heading", name="Hostile").wait_for()

    def attempt(self, name: str) -> Any:
        return self.app.evaluate("([name, portal]) => attempts[name](portal)", [name, self.way.portal])

    def cookies(self, name: str) -> list[Any]:
        return [cookie for cookie in self.context.cookies() if cookie["name"] == name]

    def session(self) -> str:
        """The portal's session, as the browser would send it for the portal's pages."""
        return str(next(iter(self.cookies("openface_session")), {"value": ""})["value"])

    def is_signed_in(self) -> bool:
        """Whether the portal knows the operator; nobody else may administer."""
        return "Runtime origin" in self.text(f"{self.way.portal}/admin/")

    def text(self, url: str) -> str:
        """What stands at an address, in a new tab."""
        tab = self.context.new_page()
        tab.goto(url)
        text = tab.inner_text("body")
        tab.close()
        return text


def all_blocked(page: Page, frame: Frame, *, frames: int) -> bool:
    """Whether the browser comes to show its own error in each frame within this one."""
    deadline = time.monotonic() + 20  # a guard against hanging
    while time.monotonic() < deadline:
        if [child.url for child in frame.child_frames] == [BLOCKED] * frames:
            return True
        page.wait_for_timeout(50)  # playwright learns of a frame's address a moment after the frame itself
    return False


@pytest.fixture(scope="module")
def session_of_operator(browser: Browser, way: Way) -> Any:
    """One sign-in for the module; each test begins with a browser that has just done it."""
    context = browser.new_context(locale="en-US")
    page = context.new_page()
    page.goto(f"{way.portal}/login/")
    page.get_by_label("Name").fill("operator")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_label("Password").press("Enter")
    page.wait_for_url(f"{way.portal}/")
    page.goto(way.app(PRIVATE))  # hands the sign-in over to the runtime origin
    assert SAYS_HELLO in page.inner_text("body")
    state = context.storage_state()
    context.close()
    return state


@pytest.fixture
def victim(browser: Browser, way: Way, session_of_operator: Any) -> Iterator[Victim]:
    context = browser.new_context(locale="en-US", storage_state=session_of_operator)
    context.set_default_timeout(30_000)
    victim = Victim(way, context, context.new_page())
    victim.open()
    yield victim
    context.close()


def test_it_sees_no_session(victim: Victim) -> None:
    seen = victim.attempt("cookies")

    assert len(victim.cookies("openface_session")) == len(victim.cookies("openface_run")) == 1
    assert "openface_session" not in seen["script"] and "openface_run" not in seen["script"]
    assert "openface" not in seen["app"]


def test_it_reads_no_page_of_the_portal(victim: Victim) -> None:
    assert victim.is_signed_in()
    for attempt in ("readAdmin", "readPortal"):
        assert victim.attempt(attempt) == "refused: TypeError"


def test_it_posts_nothing_there(victim: Victim, world: HostileWorld) -> None:
    victim.attempt("postToAdmin")
    victim.attempt("signOut")

    assert victim.is_signed_in()
    assert world.rows("SELECT 1 FROM auth_user WHERE username = 'planted'") == []


def test_its_service_worker_stays_below_its_prefix(victim: Victim) -> None:
    told = victim.attempt("workers")

    own = f"/run/{SPACE}/"
    assert told.pop(own) == own, "what is its own it may have"
    assert len(told) >= 6
    assert {answer for answer in told.values() if answer != own} == {"refused: SecurityError"}
    assert SAYS_HELLO in victim.text(victim.way.app(NEIGHBOUR))
    assert victim.text(victim.way.app(SPACE)) == "owned", "the worker works"


def test_it_commands_neither_the_origin_nor_its_cookies(victim: Victim) -> None:
    before = victim.session()

    assert victim.attempt("command") == "obey"

    assert victim.session() == before != ""
    assert [cookie["value"] for cookie in victim.context.cookies() if EVIL in cookie["value"]] == []
    assert victim.cookies("openface_language") == []
    mine = victim.cookies("mine")
    assert [(cookie["path"], cookie["domain"].lstrip(".")) for cookie in mine] == [
        (f"/run/{SPACE}/", victim.way.runtime.split("/")[2].partition(":")[0])
    ]
    assert victim.is_signed_in()
    assert SAYS_HELLO in victim.text(victim.way.app(PRIVATE))


def test_what_it_plants_replaces_no_session(victim: Victim) -> None:
    session = victim.cookies("openface_session")

    victim.attempt("plant")

    # Documented: without TLS, cookies of our names can be put beside ours, for longer paths. Ours stand.
    planted = [cookie for cookie in victim.context.cookies() if cookie["value"] == EVIL]
    assert {"/run/", f"/run/{SPACE}/"} <= {cookie["path"] for cookie in planted}
    assert [cookie for cookie in victim.cookies("openface_session") if cookie["value"] != EVIL] == session
    assert [cookie["value"] for cookie in victim.cookies("openface_run") if cookie["path"] == "/"] != [EVIL]
    assert not [cookie for cookie in planted if cookie["name"].startswith("__")]
    assert SAYS_HELLO in victim.text(victim.way.app(PRIVATE)), "the visitor is who she was"
    assert victim.is_signed_in()
    assert "openface" not in victim.attempt("cookies")["app"]


def test_who_floods_the_jar_signs_out_and_makes_nobody_else(victim: Victim) -> None:
    before = victim.session()

    victim.attempt("evict")

    # Documented: browsers keep a few hundred cookies of a site. Ours may go; the next page asks for a sign-in.
    assert victim.session() in ("", before)
    assert victim.is_signed_in() is (victim.session() == before)


def test_the_portal_shows_in_no_frame_of_it(victim: Victim) -> None:
    victim.attempt("frame")

    assert all_blocked(victim.page, victim.app, frames=3)


def test_it_leads_the_window_nowhere(victim: Victim) -> None:
    before = victim.page.url

    victim.attempt("redirect")
    victim.app.locator("#out").click(no_wait_after=True)
    victim.app.evaluate("attempts.redirect()")  # a visitor has clicked: browsers allow it then, the frame does not

    assert victim.attempt("cookies") is not None, "its page is still there"
    assert victim.page.url == before


def test_no_window_of_the_portal_is_in_its_hand(victim: Victim) -> None:
    victim.app.locator("#portal").fill(victim.way.portal)
    with victim.context.expect_page() as opened:
        victim.app.locator("#open").click()  # browsers open windows for clicks only

    # A page within another origin's window gets no handle of what it opens; in a tab of its own, one that is cut off.
    expect(victim.app.locator("#told li")).to_have_text('opener: "not opened"')
    assert opened.value.evaluate("window.opener === null")
    link = victim.page.locator("a.out")
    with victim.context.expect_page() as own_tab:
        link.click()
    own_tab.value.wait_for_load_state()
    assert own_tab.value.evaluate("window.opener === null")
    own_tab.value.locator("#portal").fill(victim.way.portal)
    own_tab.value.locator("#open").click()
    expect(own_tab.value.locator("#told li")).to_have_text('opener: "cut off"')


def test_the_portal_shows_it_whatever_it_says(victim: Victim) -> None:
    victim.page.locator(".appview iframe").evaluate("frame => { frame.src += 'unframed' }")

    expect(victim.page.frame_locator(".appview iframe").get_by_text("shown")).to_be_visible()


def test_nobody_else_shows_it(victim: Victim, world: HostileWorld) -> None:
    # A page of another origin is at hand: the same Space, reached the other way.
    elsewhere = next(way for way in world.ways.values() if way is not victim.way)
    tab = victim.context.new_page()
    tab.goto(f"{elsewhere.runtime}/run/{SPACE}/")
    tab.evaluate(
        """(url) => new Promise((done) => {
            const frame = document.createElement("iframe");
            Object.assign(frame, { src: url, name: "shown", onload: done });
            document.body.append(frame);
        })""",
        victim.way.app(NEIGHBOUR),
    )
    assert all_blocked(tab, tab.main_frame, frames=1)


def test_ten_gigabytes_and_nothing_at_all_hold_nobody_up(world: HostileWorld, way: Way) -> None:
    def get(url: str, **options: Any) -> requests.Response:
        """Only browsers know every name below localhost."""
        parts = urlsplit(url)
        here = parts._replace(netloc=f"127.0.0.1:{parts.port}").geturl()
        return requests.get(here, headers={"Host": parts.netloc}, **{"timeout": 20, **options})

    with get(way.app(SPACE) + "endless", stream=True) as endless:
        assert endless.status_code == 200
        next(endless.iter_content(1024))
        with pytest.raises(requests.ReadTimeout):
            get(way.app(SPACE) + "never", timeout=(20, 0.3))
        for url in (way.app(NEIGHBOUR), f"{way.portal}/healthz", way.app(SPACE)):
            assert get(url).status_code == 200
