"""An installation with one worker, and a visitor who starts an app on its Space's page and uses it there."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import playwright
import pytest
from playwright.sync_api import Browser, BrowserContext, expect, sync_playwright

from openface.demo.engine import Engine
from tests.apps import sources
from tests.apps.visit import Visit
from tests.browser.conftest import CHROMIUM_ARGS
from tests.e2e.world import PASSWORD, Oddities, World
from tests.gpu_worker.builds import python_image

# Pages that want a font or a script from elsewhere find nothing there, whatever this machine can reach.
HERE_ONLY = ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1", "--no-proxy-server"]
# Playwright brings a Node of its own. That one serves, so that none has to be installed.
NODE = Path(playwright.__file__).parent / "driver"

OpenApp = Callable[..., Visit]

expect.set_options(timeout=90_000)  # milliseconds; a guard against hanging, on a machine that is busy with other things


@pytest.fixture(scope="session")
def world() -> Iterator[World]:
    with tempfile.TemporaryDirectory(prefix="openface-apps-") as directory:
        path = Path(directory)
        path.chmod(0o711)  # the database's account passes through
        world = World(path)
        try:
            world.up()
            machine = world.machine("cpu1", odd=Oddities({"PATH": f"{NODE}:{os.environ['PATH']}"}))
            # Python's packages are fetched by the worker itself, and found again in the next run.
            (sources.CACHE / "venvs").mkdir(parents=True, exist_ok=True)
            (machine.directory(world.installation) / "venvs").symlink_to(sources.CACHE / "venvs")
            yield world
        except BaseException:
            print(world.log_tail(200))
            raise
        finally:
            world.down()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
        chromium = driver.chromium.launch(executable_path=path, args=[*CHROMIUM_ARGS, *HERE_ONLY])
        yield chromium
        chromium.close()


@pytest.fixture
def owner(world: World, browser: Browser) -> Iterator[BrowserContext]:
    """The owner's browser, signed in to the portal."""
    context = browser.new_context(base_url=world.web, viewport={"width": 1400, "height": 1000}, locale="en-US")
    context.set_default_timeout(90_000)
    page = context.new_page()
    page.goto("/login/")
    page.get_by_label("Name").fill("owner")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_label("Password").press("Enter")
    page.wait_for_url(lambda address: "/login/" not in address)
    page.close()
    yield context
    context.close()


@pytest.fixture(scope="session")
def box(world: World) -> Iterator[str]:
    """The name of a second worker, which runs Spaces in containers."""
    world.machine("box", odd=Oddities(engine=Engine("docker", python_image(), "")))
    yield "box"


@pytest.fixture
def open_app(world: World, owner: BrowserContext) -> Iterator[OpenApp]:
    """Import a repository's directory as a private Space, start it on its page, and return the visit to it."""
    visits: list[Visit] = []

    def run(repository: Path, *, worker: str = "cpu1") -> Visit:
        visit = Visit(world, owner, f"owner/{repository.name}")
        visits.append(visit)
        visit.start(repository, worker)
        return visit

    yield run
    for visit in visits:
        print(visit.report(), world.log_tail(100), sep="\n")  # pytest shows it where the test failed
        visit.stop()
