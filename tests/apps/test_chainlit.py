"""A chat by Chainlit behind /run: what it answers comes as it is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import FrameLocator, Page, expect

from tests.apps.conftest import OpenApp
from tests.apps.sources import source

pytestmark = [pytest.mark.browser, pytest.mark.index, pytest.mark.timeout(900)]


def test_chainlit_streams_its_answer(open_app: OpenApp, tmp_path: Path) -> None:
    visit = open_app(source("chainlit", tmp_path / "chainlit"))
    other = visit.page.context.new_page()
    other.goto(f"{visit.address}/")
    for tab in (visit.app, other):
        expect(tab.get_by_text("Ask me to count.")).to_be_visible()

    _say(visit.app, "count")
    expect(visit.app.get_by_text("one, two", exact=True)).to_be_visible()  # it waits for us to have seen that
    _say(other, "go on")
    expect(visit.app.get_by_text("one, two, three, four", exact=True)).to_be_visible()

    assert visit.escaped == visit.failed == set()
    assert visit.sockets == [f"{visit.prefix}/ws/socket.io/"]
    sessions = [cookie for cookie in other.context.cookies() if cookie["name"] == "X-Chainlit-Session-id"]
    assert [cookie["path"] for cookie in sessions] == [f"{visit.prefix}/"]


def _say(tab: FrameLocator | Page, words: str) -> None:
    box = tab.locator("#chat-input")
    box.fill(words)
    box.press("Enter")
