"""A program for the terminal behind /run, shown by textual-serve, which builds its links from PUBLIC_URL."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import WebSocket

from tests.apps.conftest import OpenApp
from tests.apps.sources import source
from tests.e2e.world import eventually

pytestmark = [pytest.mark.browser, pytest.mark.index, pytest.mark.timeout(300)]


def test_textual_serve_runs_a_program_in_the_browser(open_app: OpenApp, tmp_path: Path) -> None:
    visit = open_app(source("textual", tmp_path / "textual"))
    drawn: list[str] = []

    def listen(socket: WebSocket) -> None:
        socket.on("framereceived", lambda frame: drawn.append(frame.decode() if isinstance(frame, bytes) else frame))

    def shows(words: str) -> None:
        def seen() -> bool:
            visit.hear()
            return any(words in text for text in drawn)

        eventually(seen, f"the terminal shows: {words}")

    visit.page.on("websocket", listen)
    visit.page.reload()  # what was drawn before, nobody heard
    shows("Counted 0 times.")
    visit.app.locator(".xterm-helper-textarea").press("Enter")  # the button has the focus
    shows("Counted 1 times.")

    assert visit.escaped == visit.failed == set()
    assert set(visit.sockets) == {f"{visit.prefix}/ws"}
