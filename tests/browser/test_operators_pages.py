"""What operators alone see, and what waits in less usual ways, looks right in both languages, light and dark, wide and
narrow; and the choice of a placement is judged as it is made.

`OPENFACE_SCREENSHOTS=DIR` keeps the pictures for people to look at.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Browser, BrowserContext, Page, expect

from jobs.models import Job
from jobs.scheduling import RequirementSpec
from spaces import placement
from spaces.models import Space
from tests.browser.test_looks import complains, picture
from tests.browser.town import PASSWORD, Town, build_town
from tests.factories import GpuWorkerFactory, ago
from tests.spaces.pages import runs
from tests.spaces.pages.server import Portal
from tests.spaces.repositories import make_space

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

WIDTHS = {1600: 1000, 390: 844}
SHARED = RequirementSpec(kind="gpu", gpu_count=1, vram_mib=15_258)
TWO = RequirementSpec(kind="gpu", gpu_count=2, exclusive=True)


@pytest.fixture
def town(portal: Portal) -> Town:
    """The town, and a machine that keeps its GPUs, a named worker that is draining, a batch job, and a longer line."""
    town = build_town()
    User.objects.create_user("otto", password=PASSWORD, is_staff=True)
    hydra = GpuWorkerFactory.create(name="hydra", gpus=[{}, {}])
    runs.submit(make_space("sato/segment", topics=("space", "gpu")), requirement=SHARED)
    runs.claim(hydra).to_running()
    older = runs.submit(make_space("sato/two-cards", topics=("space", "gpu")), requirement=TWO)
    Job.objects.filter(pk=older.pk).update(queued_at=ago(900))
    GpuWorkerFactory.create(name="attic", scheduling="draining")
    named = make_space("mika/named", topics=("space", "gpu"))
    placement.place(named.pk, placement.wish("worker", "attic"), actor=None, reason="its data is there")
    runs.submit(named, requirement=placement.requirement_of(Space.objects.get(pk=named.pk)))
    runs.submit(make_space("mika/behind", topics=("space", "gpu", "vram-16gb", "cpu")), requirement=SHARED)
    bench = runs.submit(make_space("mika/bench", topics=("benchmark",)))
    Job.objects.filter(pk=bench.pk).update(mode="batch", kind="benchmark")
    runs.claim(town.cpu).to_running().write("run", "epoch 1 of 10\nepoch 2 of 10\n")
    return town


PAGES = {
    "queue": "/queue/",
    "placement": "/spaces/mika/named/placement/",
    "placement-preview": "/spaces/mika/behind/placement/?placement=cpu",
    "waiting-named": "/spaces/mika/named/",
    "waiting-behind": "/spaces/mika/behind/",
    "computing": "/spaces/mika/bench/",
    "odd-topics": "/spaces/mika/behind/activity/",
    "cards": "/",
    "admin-placement": "/admin/spaces/space/{named}/placement/",
    "admin-job": "/admin/jobs/job/{job}/change/",
}


@pytest.mark.parametrize(
    ("width", "language", "scheme"),
    [(1600, "en-US", "light"), (390, "ja-JP", "dark")],
)
def test_no_page_sticks_out_of_the_window(
    browser: Browser, portal: Portal, town: Town, tmp_path: Path, width: int, language: str, scheme: str
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
    sign_in(page)
    ids = {"named": Space.objects.get(name="named").pk, "job": Job.objects.get(repo="behind").pk}
    wide = []
    for name, path in PAGES.items():
        picture(page, path.format(**ids), pictures / f"{name}-{width}-{language[:2]}-{scheme}.png")
        overflow = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        if overflow > 0 and "admin" not in name:  # the admin's own tables scroll
            wide.append(f"{name} is {overflow} px wider than {width} px")
    context.close()
    assert wide == []
    assert refusals == []


def test_a_choice_is_judged_as_it_is_made_and_then_set(town: Town, visitor: BrowserContext) -> None:
    page = visitor.new_page()
    sign_in(page)
    page.goto("/spaces/mika/behind/placement/")

    page.get_by_label("On a CPU").check()
    expect(page.locator("#preview")).to_contain_text("It would need a CPU worker.")
    page.get_by_label("On one worker").check()
    page.get_by_label("The worker").select_option("attic")
    expect(page.locator("#preview")).to_contain_text("Draining: takes no new jobs.")
    assert Space.objects.get(name="behind").placement == "automatic"

    page.locator("#reason").fill("its data is there")
    page.get_by_role("button", name="Place it: On attic only").click()

    expect(page.locator(".notice")).to_contain_text("Placed: On attic only.")
    assert str(Space.objects.get(name="behind").placement_worker) == "attic"


def sign_in(page: Page) -> None:
    page.goto("/login/")
    page.locator("#id_username").fill("otto")
    page.locator("#id_password").fill(PASSWORD)
    page.locator("#id_password").press("Enter")
    page.wait_for_url("**/")
