"""An app as ComfyUI is: it compares Host with Origin, tells progress by WebSocket, and has escaped slashes in paths."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.apps.conftest import OpenApp
from tests.apps.sources import source, with_wheels

pytestmark = [pytest.mark.browser, pytest.mark.index, pytest.mark.timeout(900)]


@pytest.mark.parametrize("kind", ["process", pytest.param("container", marks=pytest.mark.docker)])
def test_it_shows_progress_and_keeps_files_in_folders(
    open_app: OpenApp, tmp_path: Path, request: pytest.FixtureRequest, kind: str
) -> None:
    repository = with_wheels(source("comfy", tmp_path / f"comfy-{kind}"))
    if kind == "container":
        visit = open_app(repository, worker=request.getfixturevalue("box"))
    else:
        visit = open_app(repository)

    visit.app.get_by_role("button", name="Queue").click()
    expect(visit.app.locator("#progress")).to_have_text("1/3 2/3 3/3")
    expect(visit.app.locator("#result")).to_have_text("xof der a")
    visit.app.get_by_role("button", name="Save").click()
    expect(visit.app.locator("#saved")).to_have_text("workflows/fox.json: a red fox")

    assert visit.escaped == visit.failed == set()
    assert visit.sockets == [f"{visit.prefix}/ws"]
