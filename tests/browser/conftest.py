"""A real Chromium against a real portal."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, sync_playwright
from pytest_django import Settings

from tests.spaces.pages.server import Portal, serve

CHROMIUM_ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def portal(django_db_setup: None, postgres_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Portal]:
    """The portal on the tests' database."""
    yield from serve(postgres_url, tmp_path_factory.mktemp("portal"))


@pytest.fixture(autouse=True)
def repositories(settings: Settings, portal: Portal) -> Path:
    """Here and in the portal the same repositories."""
    settings.OPENFACE_REPOSITORIES_DIR = portal.repositories
    return portal.repositories


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for the tests of a module.

    Not for the whole run: while it lives, playwright's event loop runs in this thread, and Django would refuse every
    synchronous query of every other test. In these modules we know what we do, and say so to Django.
    """
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    with sync_playwright() as playwright:
        path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
        chromium = playwright.chromium.launch(executable_path=path, args=CHROMIUM_ARGS)
        yield chromium
        chromium.close()
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture
def visitor(browser: Browser, portal: Portal) -> Iterator[BrowserContext]:
    """A fresh visitor of the portal."""
    context = browser.new_context(base_url=portal.url, viewport={"width": 1600, "height": 1000}, locale="en-US")
    yield context
    context.close()
