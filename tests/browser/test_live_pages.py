"""A page follows what happens without a reload, and works without scripts and without a mouse."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect

from jobs import lifecycle, notices
from jobs.clock import database_now
from spaces.models import Space
from tests.browser.town import PASSWORD
from tests.factories import UptimeFactory, WorkerFactory
from tests.spaces.pages import runs
from tests.spaces.pages.server import Portal
from tests.spaces.repositories import make_space
from workers.models import Worker

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

expect.set_options(timeout=20_000)  # milliseconds; a guard against hanging


@pytest.fixture
def worker(transactional_db: None) -> Worker:
    UptimeFactory()
    return WorkerFactory.create(name="cpu1")


@pytest.fixture
def space(transactional_db: None) -> Space:
    User.objects.create_user("alice", password=PASSWORD)
    return make_space("alice/notes", visibility="private")


def sign_in(page: Page) -> None:
    page.goto("/login/?next=/spaces/alice/notes/")
    page.get_by_label("Name").fill("alice")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_label("Password").press("Enter")
    page.wait_for_url("**/spaces/alice/notes/")


def test_start_becomes_the_running_app_without_a_reload(visitor: BrowserContext, space: Space, worker: Worker) -> None:
    page = visitor.new_page()
    sign_in(page)
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("heading", name="1st in line")).to_be_visible()
    page.evaluate("window.sameDocument = true")

    attempt = runs.claim(worker)
    expect(page.get_by_role("heading", name="cpu1 has taken it")).to_be_visible()
    attempt.report("building").write("build", "#5 [2/3] RUN pip install\n#5 1.2 Collecting gradio\n")
    expect(page.get_by_role("heading", name="Building, step 2 of 3")).to_be_visible()
    expect(page.get_by_text("Collecting gradio")).to_be_visible()
    attempt.report("starting").report("running")
    expect(page.locator("iframe")).to_be_visible()
    expect(page.locator(".head .badge")).to_have_text("CPU · Running")

    lifecycle.mark_silent(attempt.job.pk, worker_name="cpu1", since=worker.last_seen_at, now=database_now())
    expect(page.get_by_role("heading", name="cpu1 is not heard from")).to_be_visible()
    expect(page.locator("iframe")).to_have_count(0)
    assert page.evaluate("window.sameDocument") is True


def test_a_change_during_the_fetch_of_the_one_before_is_not_lost(
    visitor: BrowserContext, space: Space, worker: Worker
) -> None:
    page = visitor.new_page()
    sign_in(page)
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("heading", name="1st in line")).to_be_visible()
    held: list[Route] = []
    page.route("**/?part=stage", lambda route: held.append(route), times=1)
    attempt = runs.claim(worker)
    while not held:
        page.wait_for_timeout(20)  # lets the browser speak
    taken = held[0].fetch()

    attempt.report("building").report("starting").report("running")
    expect(page.locator(".head .badge")).to_have_text("CPU · Running")  # the page has heard of it
    held[0].fulfill(response=taken)

    expect(page.locator("iframe")).to_be_visible()


def test_a_frame_is_not_loaded_again_while_it_runs(visitor: BrowserContext, space: Space, worker: Worker) -> None:
    job = runs.submit(space)
    runs.claim(worker).to_running()
    page = visitor.new_page()
    sign_in(page)
    page.locator("iframe").evaluate("frame => { frame.sameFrame = true }")

    with page.expect_event("console", lambda message: message.text == "state heard"):
        page.evaluate("""
            new Promise((heard) => {
                const source = new EventSource(document.querySelector("[data-live-source]").dataset.liveSource);
                source.onopen = heard;
                let states = 0;
                source.addEventListener("state", () => { if (++states === 2) console.log("state heard"); });
            })
        """)
        notices.publish("job", job=job.pk, space=space.pk)
    assert page.locator("iframe").evaluate("frame => frame.sameFrame") is True


def test_what_ails_a_running_app_appears_and_goes_under_its_frame(
    visitor: BrowserContext, space: Space, worker: Worker
) -> None:
    runs.submit(space)
    attempt = runs.claim(worker).to_running()
    page = visitor.new_page()
    sign_in(page)
    page.locator("iframe").evaluate("frame => { frame.sameFrame = true }")
    told = page.locator(".strip").get_by_role("status")
    expect(told).to_have_text("")

    attempt.report("health", healthy=False, reason="no_answer")
    expect(told).to_have_text("Nothing answers on its port.")
    attempt.report("health", healthy=False, reason="paused")
    expect(told).to_have_text("Its container is paused on the machine.")
    attempt.report("health", healthy=True)
    expect(told).to_have_text("")
    assert page.locator("iframe").evaluate("frame => frame.sameFrame") is True


def test_the_log_follows(visitor: BrowserContext, space: Space, worker: Worker) -> None:
    runs.submit(space)
    attempt = runs.claim(worker).to_running().write("run", "first\n")
    page = visitor.new_page()
    sign_in(page)
    page.get_by_role("link", name="Logs").click()
    log = page.locator("ol.log")
    expect(log).to_contain_text("first")
    attempt.write("run", "10%\r")
    expect(log).to_contain_text("10%")
    attempt.write("run", "20%\r100%\n\x1b[31mlast\x1b[0m\n")
    expect(log.locator(".sgr-red")).to_have_text("last")
    expect(log).not_to_contain_text("10%")
    assert log.locator("li").all_inner_texts() == ["first", "100%", "last"]


def test_a_page_becomes_live_again_after_answers_that_are_no_stream(
    visitor: BrowserContext, space: Space, worker: Worker
) -> None:
    runs.submit(space)
    attempt = runs.claim(worker).to_running().write("run", "first\n")
    page = visitor.new_page()
    refused: list[str] = []

    def refuse_twice(route: Route) -> None:
        if refused.count(route.request.url.split("?")[0]) < 2:
            refused.append(route.request.url.split("?")[0])
            route.fulfill(status=503)
        else:
            route.continue_()

    page.route("**/live/**", refuse_twice)
    sign_in(page)
    page.goto("/spaces/alice/notes/logs/?stream=run")
    attempt.write("run", "second\n")
    expect(page.locator("ol.log li")).to_have_text(["first", "second"])
    lifecycle.request_stop(attempt.job.pk)
    expect(page.locator(".head .badge")).to_have_text("CPU · Stopping")
    assert len(refused) == 4


def test_everything_works_with_the_keyboard(visitor: BrowserContext, space: Space, worker: Worker) -> None:
    page = visitor.new_page()
    sign_in(page)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.get_by_role("button", name="Start").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="1st in line")).to_be_visible()
    page.get_by_role("button", name="Stop waiting").focus()
    page.keyboard.press("Space")
    expect(page.locator(".head .badge")).to_have_text("CPU · Stopped")
    page.goto("/spaces/")
    page.keyboard.press("/")
    expect(page.get_by_label("Search Spaces")).to_be_focused()
    page.keyboard.type("nothing like this")
    expect(page.get_by_role("heading", name="No Space fits")).to_be_visible()


def test_everything_works_without_scripts(browser: Browser, portal: Portal, space: Space, worker: Worker) -> None:
    context = browser.new_context(base_url=portal.url, java_script_enabled=False, locale="en-US")
    page = context.new_page()
    sign_in(page)
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("heading", name="1st in line")).to_be_visible()
    runs.claim(worker).to_running().write("run", "hello\n")
    expect(page.locator("iframe")).to_be_visible()  # the page looks again by itself
    page.get_by_role("link", name="Logs").click()
    expect(page.locator("ol.log")).to_contain_text("hello")
    page.get_by_role("button", name="日本語").click()
    expect(page.locator(".head .badge")).to_have_text("CPU · 実行中")
    page.get_by_role("button", name="停止").click()
    expect(page.locator(".head .badge")).to_have_text("CPU · 停止中")
    context.close()
