"""Two Spaces of one framework in one browser: cookies of the same name, sessions and uploads never meet."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.apps.conftest import OpenApp
from tests.apps.sources import source
from tests.apps.visit import Visit, text_file

pytestmark = [pytest.mark.browser, pytest.mark.index, pytest.mark.timeout(900)]

XSRF = "_streamlit_xsrf"


def test_two_streamlits_count_and_take_files_side_by_side(open_app: OpenApp, tmp_path: Path) -> None:
    left = open_app(source("streamlit", tmp_path / "streamlit-left"))
    right = open_app(source("streamlit", tmp_path / "streamlit-right"))

    for visit, count in ((left, 1), (right, 1), (left, 2), (left, 3)):
        _count(visit, count)
    _upload(left, "さくら", "らくさ")
    _upload(right, "もみじ", "じみも")
    # Each runs again, and still has what it had.
    _count(right, 2)
    expect(right.app.get_by_text("Backwards: じみも")).to_be_visible()
    _count(left, 4)
    expect(left.app.get_by_text("Backwards: らくさ")).to_be_visible()

    tokens = {
        cookie["path"]: cookie["value"] for cookie in left.page.context.cookies() if cookie["name"].startswith(XSRF)
    }
    assert set(tokens) == {f"{left.prefix}/", f"{right.prefix}/"}
    assert len(set(tokens.values())) == 2
    for visit in (left, right):
        assert visit.escaped == visit.failed == set()
        assert visit.sockets == [f"{visit.prefix}/_stcore/stream"]


def _count(visit: Visit, expected: int) -> None:
    visit.app.get_by_role("button", name="Count").click()
    expect(visit.app.get_by_text(f"Counted {expected} times.")).to_be_visible()


def _upload(visit: Visit, text: str, backwards: str) -> None:
    visit.app.locator("input[type=file]").set_input_files(text_file(text))
    expect(visit.app.get_by_text(f"Backwards: {backwards}")).to_be_visible()
