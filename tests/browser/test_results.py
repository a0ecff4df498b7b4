"""Results of batch jobs on every width and in both languages: long names and odd ones stay within the window.

`OPENFACE_SCREENSHOTS=DIR` keeps the pictures for people to look at.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Browser
from pytest_django import Settings

from jobs import artifacts
from jobs.artifact_store import Incoming
from spaces import launch
from tests.browser.test_looks import WIDTHS, complains, picture
from tests.factories import UptimeFactory, WorkerFactory
from tests.spaces.pages import runs
from tests.spaces.pages.server import Portal
from tests.spaces.repositories import make_space

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

NAMES = {
    "score.json": 214,
    "plots/損失曲線 最終.png": 48_213,
    "checkpoints/" + "very-long-name-without-a-place-to-break-" * 5 + ".safetensors": 1_482_113_024,
    "\u202egnp.exe": 12,
}


def finished(full_name: str, *, code: int) -> None:
    """A Space whose batch job has ended, with results and some that were left out."""
    owner, _ = User.objects.get_or_create(username="mika")
    launch.start(make_space(full_name, topics=("benchmark",)), user=owner)
    attempt = runs.claim(WorkerFactory.create()).to_running().write("run", "score: 42\n")
    for name, size in NAMES.items():
        incoming = Incoming()
        artifact = artifacts.keep(attempt.lease, name, incoming, sha256=hashlib.sha256(b"").hexdigest())
        artifact.size = size  # as it is shown; nobody fetches it here
        artifact.save(update_fields=["size"])
    artifacts.leave_out(attempt.lease, [("optimizer.pt", 9_663_676_416, "file_too_large")])
    attempt.report("exited", code=code, oom_killed=False)


def test_results_stay_within_the_window(browser: Browser, portal: Portal, settings: Settings, tmp_path: Path) -> None:
    settings.OPENFACE_ARTIFACTS_DIR = tmp_path / "artifacts"
    UptimeFactory.create()
    finished("mika/done", code=0)
    finished("mika/failed", code=3)
    pictures, wrong = Path(os.environ.get("OPENFACE_SCREENSHOTS") or tmp_path), []
    for width, language, scheme in ((1600, "en-US", "light"), (390, "ja-JP", "dark")):
        context = browser.new_context(
            base_url=portal.url,
            viewport={"width": width, "height": WIDTHS[width]},
            color_scheme="light" if scheme == "light" else "dark",
            locale=language,
        )
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text) if complains(message) else None)
        for name, path in {
            "results-done": "/spaces/mika/done/",
            "results-failed": "/spaces/mika/failed/",
            "results-tab": "/spaces/mika/done/results/",
            "results-files": "/spaces/mika/done/files/",
        }.items():
            picture(page, path, pictures / f"{name}-{width}-{scheme}.png")
            overflow = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
            if overflow > 0:
                wrong.append(f"{name} is {overflow} px wider than {width} px")
        context.close()
    assert wrong == []
