"""PDF files of an app: in a frame of its page, in a tab, and as a download."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.apps.conftest import OpenApp
from tests.apps.sources import source
from tests.e2e.world import eventually

pytestmark = [pytest.mark.browser, pytest.mark.index, pytest.mark.timeout(300)]

TEAL = [0, 128, 128]
BLOCKED = "chrome-error://chromewebdata/"
# How much of a picture, in percent, has the colour of the paper.
SHARE = """async ([picture, wanted]) => {
  const bitmap = await createImageBitmap(await (await fetch("data:image/png;base64," + picture)).blob());
  const drawn = new OffscreenCanvas(bitmap.width, bitmap.height).getContext("2d");
  drawn.drawImage(bitmap, 0, 0);
  const { data } = drawn.getImageData(0, 0, bitmap.width, bitmap.height);
  let found = 0;
  for (let at = 0; at < data.length; at += 4)
    found += wanted.every((part, index) => Math.abs(part - data[at + index]) <= 3);
  return (400 * found) / data.length;
}"""


def test_a_pdf_is_shown_in_the_app_s_own_tab_and_is_downloaded_under_its_name(
    open_app: OpenApp, tmp_path: Path
) -> None:
    visit = open_app(source("papers", tmp_path / "papers"))

    with visit.page.expect_download() as downloaded:
        visit.app.get_by_role("link", name="Download").click()
    assert downloaded.value.suggested_filename == "論文.pdf"
    assert downloaded.value.path().read_bytes().endswith(b"%%EOF\n")

    # The portal's frame is sandboxed, and in such a frame Chromium starts no PDF viewer. A tab has no such bounds.
    expect(visit.app.get_by_role("heading", name="Papers")).to_be_visible()
    eventually(lambda: BLOCKED in visit.frames(), "the browser says that it shows none")
    with visit.page.context.expect_page() as opened:
        visit.app.get_by_role("link", name="In a tab of its own").click()
    _shows_the_paper(opened.value)

    own = visit.page.context.new_page()
    own.goto(f"{visit.address}/")
    _shows_the_paper(own)

    assert visit.escaped == visit.failed == set()


def _shows_the_paper(page: Page) -> None:
    canvas = page.context.new_page()

    def share() -> float:
        picture = base64.b64encode(page.screenshot()).decode()
        return float(canvas.evaluate(SHARE, [picture, TEAL]))

    eventually(lambda: share() > 5, "a part of the page has the colour of the paper")
