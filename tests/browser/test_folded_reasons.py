"""A long list of reasons, unfolded by a reader: it fits narrow windows, and stays unfolded when it is drawn again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Browser, expect

from tests.browser.test_operators_pages import sign_in
from tests.browser.town import PASSWORD
from tests.factories import GpuWorkerFactory
from tests.spaces.pages import runs
from tests.spaces.pages.server import Portal
from tests.spaces.repositories import make_space

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_what_was_unfolded_stays_so_and_fits(browser: Browser, portal: Portal, tmp_path: Path) -> None:
    User.objects.create_user("otto", password=PASSWORD, is_staff=True)
    for number in range(40):
        GpuWorkerFactory.create(
            name=f"machine-number-{number:02}", scheduling="draining" if number < 30 else "disabled"
        )
    job = runs.submit(make_space("alice/first", topics=("space", "gpu")), requirement=runs.GPU)
    rest = f"details[id='{job.requirement_id}-service-why']"
    context = browser.new_context(base_url=portal.url, viewport={"width": 390, "height": 844})
    page = context.new_page()
    sign_in(page)
    page.goto("/queue/")

    page.locator(f"{rest} > summary").click()
    page.locator(rest).get_by_text("machine-number-08, machine-number-09").wait_for()
    with page.expect_response(lambda answer: "part=list" in answer.url):
        pass
    page.wait_for_function("document.querySelectorAll('.htmx-settling, .htmx-swapping').length === 0")

    expect(page.locator(rest)).to_have_attribute("open", "")
    assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
    pictures = Path(os.environ.get("OPENFACE_SCREENSHOTS") or tmp_path)
    page.screenshot(path=pictures / "folded-390.png", full_page=True)
    page.set_viewport_size({"width": 1600, "height": 1000})
    page.screenshot(path=pictures / "folded-1600.png", full_page=True)
    context.close()
