"""What Node's tools make, behind /run: Express with socket.io, and Vite's files, which are addressed from the root."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.apps.conftest import OpenApp
from tests.apps.sources import source, with_build, with_node_modules

pytestmark = [pytest.mark.browser, pytest.mark.index, pytest.mark.timeout(600)]


def test_express_and_socket_io_talk_by_polling_and_by_websocket_where_the_client_is_told_the_path(
    open_app: OpenApp, tmp_path: Path
) -> None:
    visit = open_app(with_node_modules(source("socketio", tmp_path / "chat")))
    other = visit.page.context.new_page()

    # As the documentation has it: the client looks for /socket.io/ at the root, where only HTTP is sent back.
    other.goto(f"{visit.address}/")
    expect(other.locator("#transport")).to_have_text("polling")
    visit.app.get_by_label("Line").fill("hello")
    visit.app.get_by_role("button", name="Say").click()
    expect(other.get_by_role("listitem")).to_have_text(["hello"])
    assert {"/socket.io/", "/socket.io/socket.io.js", "/static/chat.js"} <= visit.escaped

    # Told the path by OPENFACE_BASE_PATH.
    other.goto(f"{visit.address}/?path")
    expect(other.locator("#transport")).to_have_text("websocket")
    other.get_by_label("Line").fill("and back")
    other.get_by_role("button", name="Say").click()
    expect(visit.app.get_by_role("listitem")).to_have_text(["hello", "and back"])


def test_vite_s_build_finds_its_assets_and_its_later_parts(open_app: OpenApp, tmp_path: Path) -> None:
    visit = open_app(with_build(source("vite", tmp_path / "vite")))

    expect(visit.app.get_by_text("a file beside the page")).to_be_visible()
    leaf = visit.app.get_by_role("img", name="A leaf")
    assert leaf.evaluate("async (image) => { await image.decode(); return image.naturalWidth }") == 32
    visit.app.get_by_role("button", name="Count").click()  # loads a script and its style
    expect(visit.app.get_by_text("Counted 1 times.")).to_have_css("color", "rgb(0, 128, 128)")

    assert visit.failed == set()
    assert "/data.json" in visit.escaped
