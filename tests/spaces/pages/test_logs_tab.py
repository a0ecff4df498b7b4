"""The Logs tab shows the end of a stream, and hands out the whole."""

from __future__ import annotations

import pytest
from django.test import Client

from spaces.models import Space
from tests.spaces.pages import runs
from tests.spaces.repositories import make_space
from workers.models import Worker

pytestmark = pytest.mark.django_db


@pytest.fixture
def space() -> Space:
    return make_space("alice/notes")


def test_before_a_worker_has_it_there_is_none(space: Space, carol: Client) -> None:
    assert "No log yet" in carol.get("/spaces/alice/notes/logs/").content.decode()


def test_the_telling_stream_comes_first(space: Space, carol: Client, worker: Worker) -> None:
    runs.submit(space)
    attempt = runs.claim(worker).report("building").write("build", "building it\n")
    assert "building it" in carol.get("/spaces/alice/notes/logs/").content.decode()
    attempt.report("starting").report("running").write("run", "serving\n")
    assert "serving" in carol.get("/spaces/alice/notes/logs/").content.decode()


def test_only_the_end_of_a_long_log_is_drawn_and_it_begins_with_a_whole_line(
    space: Space, carol: Client, worker: Worker
) -> None:
    runs.submit(space)
    attempt = runs.claim(worker).to_running()
    for begin in range(0, 40_000, 1000):
        attempt.write("run", "".join(f"line {number:06d}\n" for number in range(begin, begin + 1000)))
    shown = carol.get("/spaces/alice/notes/logs/?stream=run").context["shown"]
    assert shown.lines[-1].text == "line 039999"
    assert 10_000 < len(shown.lines) < 40_000
    assert shown.lines[0].text.startswith("line 0")
    assert shown.offset == 40_000 * 12


def test_the_download_is_everything_as_it_was_written(space: Space, carol: Client, worker: Worker) -> None:
    runs.submit(space)
    attempt = runs.claim(worker).to_running().write("run", "\x1b[31mred\x1b[0m 日本語\n")
    answer = carol.get(f"/spaces/alice/notes/logs/{attempt.lease.pk}/run.txt")
    assert answer.content.decode() == "\x1b[31mred\x1b[0m 日本語\n"
    assert answer["Content-Type"] == "text/plain; charset=utf-8"
    assert answer["Content-Disposition"].startswith("attachment")


def test_earlier_attempts_can_be_read(space: Space, carol: Client, worker: Worker) -> None:
    runs.submit(space)
    first = runs.claim(worker).report("building").write("build", "first try\n")
    first.report("declined", reason="shutdown")
    runs.claim(worker).report("building").write("build", "second try\n")
    page = carol.get("/spaces/alice/notes/logs/").content.decode()
    assert "second try" in page
    assert f"lease={first.lease.pk}" in page
    assert "first try" in carol.get(f"/spaces/alice/notes/logs/?stream=build&lease={first.lease.pk}").content.decode()


@pytest.mark.parametrize("query", ["?stream=nothing", "?lease=nothing", "?lease=00000000-0000-0000-0000-000000000000"])
def test_what_does_not_exist_is_not_found(space: Space, carol: Client, query: str) -> None:
    assert carol.get(f"/spaces/alice/notes/logs/{query}").status_code == 404


def test_a_log_without_its_end_says_so_and_only_that_one(space: Space, carol: Client, worker: Worker) -> None:
    runs.submit(space)
    attempt = runs.claim(worker).report("building").write("build", "built\n")
    attempt.report("starting").report("running").write("run", "serving\n")
    attempt.report("exited", code=1, oom_killed=False, log_ends={"build": 6, "run": 80})
    sentence, line = "The end of this log was not delivered.", "\n… the end of this log was not delivered …\n"
    raw = f"/spaces/alice/notes/logs/{attempt.lease.pk}/"

    assert sentence in carol.get("/spaces/alice/notes/logs/?stream=run").content.decode()
    assert carol.get(f"{raw}run.txt").content.decode() == "serving\n" + line
    assert sentence not in carol.get("/spaces/alice/notes/logs/?stream=build").content.decode()
    assert carol.get(f"{raw}build.txt").content.decode() == "built\n"


def test_the_end_of_a_log_that_came_late_is_shown_as_any_other(space: Space, carol: Client, worker: Worker) -> None:
    runs.submit(space)
    attempt = runs.claim(worker).to_running().write("run", "one\n")
    attempt.report("exited", code=1, oom_killed=False, log_ends={"run": 8}).write("run", "two\n")

    assert "not delivered" not in carol.get("/spaces/alice/notes/logs/?stream=run").content.decode()
    assert carol.get(f"/spaces/alice/notes/logs/{attempt.lease.pk}/run.txt").content.decode() == "one\ntwo\n"
