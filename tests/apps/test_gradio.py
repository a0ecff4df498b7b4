"""Gradio behind /run: what goes through its queue, what it streams, what is uploaded. Untouched, in three majors."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.apps.conftest import OpenApp
from tests.apps.sources import source
from tests.apps.visit import text_file

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    "major", [pytest.param(4, marks=pytest.mark.index), pytest.param(5, marks=pytest.mark.index), 6]
)
def test_gradio_greets_streams_and_takes_a_file(open_app: OpenApp, tmp_path: Path, major: int) -> None:
    visit = open_app(source("gradio", tmp_path / f"gradio-{major}", requirements=f"gradio-{major}.txt"))
    app = visit.app

    app.get_by_label("Name").fill("Ada")
    app.get_by_role("button", name="Greet").click()
    expect(app.get_by_label("Greeting")).to_have_value("Hello, Ada!")
    picture = app.locator("#picture img")
    expect(picture).to_be_visible()
    assert picture.evaluate("async (image) => { await image.decode(); return image.naturalWidth }") == 60

    app.get_by_role("button", name="Count", exact=True).click()
    expect(app.get_by_label("Counted")).to_have_value("one, two")  # it waits for us to have seen that
    app.get_by_role("button", name="Go on").click()
    expect(app.get_by_label("Counted")).to_have_value("one, two, three, four")

    app.locator("#upload input[type=file]").set_input_files(text_file("さくら"))
    expect(app.get_by_label("Backwards")).to_have_value("らくさ")

    assert visit.failed == set()
    # Gradio 4 asks for one style at the root, and gets it all the same.
    assert [path.partition("-")[0] for path in visit.escaped] == (["/assets/index"] if major == 4 else [])
