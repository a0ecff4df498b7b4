"""What a worker says in its own words is marked as English, headed by ours, and never markup."""

from __future__ import annotations

import re
from pathlib import Path

from django.utils.translation import override

from workers.workers_words import CHECKS, finding, told

GPUS_PAGE = Path(__file__).parents[2] / "docs" / "gpus.md"


def test_a_finding_is_headed_in_the_readers_language() -> None:
    check = {"check": "engine", "ok": False, "detail": "Docker is away", "remedy": "Start it."}

    with override("ja"):
        said = finding(check)

    assert said == 'コンテナエンジンとそのディスク (engine): <span lang="en">Docker is away. Start it.</span>'


def test_one_of_a_newer_worker_is_headed_by_its_code_alone() -> None:
    assert finding({"check": "moon", "detail": "full", "remedy": None}) == 'moon: <span lang="en">full.</span>'


def test_no_words_of_a_worker_are_markup() -> None:
    hostile = "<b>&"

    assert "<b>" not in finding({"check": hostile, "detail": hostile, "remedy": hostile})
    assert told("100 %% of %(what)s <i>", what=hostile) == "100 % of &lt;b&gt;&amp; &lt;i&gt;"


def test_every_check_that_the_doctor_tells_has_a_heading() -> None:
    page = GPUS_PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|.*\|.*\|$", page.partition("## The doctor")[2], re.MULTILINE)
    told_by_a_worker = {code for row in rows for code in re.findall(r"`(\w+)`", row)}

    # its own way to us, and what only `verify` asks, is told on the machine alone
    assert told_by_a_worker - {"control_plane", "clock", "gateway"} <= set(CHECKS)
