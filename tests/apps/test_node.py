"""A Node app without packages, which knows of no prefix."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.apps.conftest import OpenApp
from tests.apps.sources import source
from tests.apps.visit import text_file

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]


def test_a_node_app_that_knows_no_prefix_works(open_app: OpenApp, tmp_path: Path) -> None:
    visit = open_app(source("node", tmp_path / "node"))
    app = visit.app

    expect(app.get_by_text("Visit 1")).to_have_css("color", "rgb(0, 128, 128)")
    app.get_by_label("Line").fill("<b>was here</b>")
    app.get_by_role("button", name="Sign").click()
    expect(app.get_by_role("listitem")).to_have_text(["<b>was here</b>"])
    expect(app.get_by_text("Visit 2")).to_be_visible()  # the cookie came back

    app.get_by_label("Say").fill("hello")
    app.get_by_label("Say").press("Enter")
    expect(app.locator("#heard")).to_have_text("HELLO!")

    app.get_by_label("Any text").set_input_files(text_file("stressed"))
    expect(app.locator("#backwards")).to_have_text("desserts")

    assert visit.escaped == {"/static/style.css", "/static/page.js", "/lines", "/backwards"}
    assert visit.failed == set()
    assert visit.sockets == [f"{visit.prefix}/talk"] * 2
