"""Every page, in both languages, light and dark, wide and narrow: nothing sticks out, and nothing is refused by the
browser for breaking our own policy.

`OPENFACE_SCREENSHOTS=DIR` keeps the pictures for people to look at.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone
from playwright.sync_api import Browser, ConsoleMessage, Page

from spaces import escaped, tokens
from tests.browser.town import PASSWORD, Town, build_town
from tests.spaces.pages.server import Portal

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

WIDTHS = {1600: 1000, 390: 844}


@pytest.fixture
def town(portal: Portal) -> Town:
    town = build_town()
    long_path = "/assets/" + "a-chunk-with-a-long-name-" * 6 + ".js"
    escaped.record({str(town.spaces["running"]): {"/static/app.css": 1204, long_path: 31, "/api/queue": 3}})
    for name in ("laptop", "the notebook on the workbench that asks every night at two o'clock"):
        tokens.issue(town.owner, name=name[:64], ends_on=timezone.localdate() + timedelta(days=30))
    return town


def pages(town: Town) -> dict[str, str]:
    """Every kind of page by a name for its picture."""
    return {
        "list": "/",
        "list-filtered": "/spaces/?state=failed&q=nothing",
        "idle": town.path("idle"),
        "waiting": town.path("queued"),
        "building": town.path("building"),
        "running": town.path("running"),
        "unavailable": town.path("unavailable"),
        "failed": town.path("failed"),
        "stopped": town.path("stopped"),
        "logs": town.path("failed", "logs/"),
        "logs-running": town.path("running", "logs/"),
        "activity": town.path("stopped", "activity/"),
        "files": town.path("running", "files/"),
        "file": town.path("running", "files/app.py"),
        "settings": town.path("running", "settings/"),
        "tokens": "/tokens/",
        "not-found": "/spaces/nobody/nothing/",
        "fleet": "/fleet/",
    }


@pytest.mark.parametrize(("language", "scheme"), [("en-US", "light"), ("ja-JP", "dark")])
@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_sticks_out_of_the_window(
    browser: Browser, portal: Portal, town: Town, tmp_path: Path, language: str, scheme: str, width: int
) -> None:
    pictures = Path(os.environ.get("OPENFACE_SCREENSHOTS") or tmp_path)
    context = browser.new_context(
        base_url=portal.url,
        viewport={"width": width, "height": WIDTHS[width]},
        color_scheme="light" if scheme == "light" else "dark",
        locale=language,
    )
    page = context.new_page()
    refusals: list[str] = []
    page.on("console", lambda message: refusals.append(message.text) if complains(message) else None)
    page.on("pageerror", lambda error: refusals.append(str(error)))
    picture(page, "/login/", pictures / f"login-{width}-{scheme}.png")
    sign_in(page)
    wrong = []
    for name, path in pages(town).items():
        picture(page, path, pictures / f"{name}-{width}-{scheme}.png")
        overflow = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        if overflow > 0:
            wrong.append(f"{name} is {overflow} px wider than {width} px")
        language_shown = page.evaluate("document.documentElement.lang")
        if language_shown != language[:2]:
            wrong.append(f"{name} is in {language_shown}")
    context.close()
    assert wrong == []
    assert refusals == []


def complains(message: ConsoleMessage) -> bool:
    """Whether the browser found fault with us. The app's own server is not there, and one page is missing."""
    expected = ("ERR_CONNECTION_REFUSED", "404 (Not Found)")
    return message.type == "error" and not any(text in message.text for text in expected)


def picture(page: Page, path: str, file: Path) -> None:
    page.goto(path, wait_until="domcontentloaded")
    page.screenshot(path=file, full_page=True)


def sign_in(page: Page) -> None:
    page.goto("/login/")
    page.locator("#id_username").fill("mika")
    page.locator("#id_password").fill(PASSWORD)
    page.locator("#id_password").press("Enter")
    page.wait_for_url("**/")
