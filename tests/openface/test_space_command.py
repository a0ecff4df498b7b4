"""`manage.py space` does from a shell what the buttons do, under somebody's name."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db.models.functions import Now

from jobs.models import AuditEvent, Job
from jobs.states import JobState

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def a_space(settings: Any, tmp_path: Path) -> None:
    settings.OPENFACE_REPOSITORIES_DIR = tmp_path / "repositories"
    source = tmp_path / "hello"
    source.mkdir()
    (source / "README.md").write_text("---\ntitle: Hello\nsdk: docker\n---\n")
    (source / "Dockerfile").write_text("FROM scratch\n")
    call_command("import_space", str(source), "demo/hello", "--topics", "space,cpu", stdout=io.StringIO())


@pytest.fixture
def admin() -> User:
    return User.objects.create_superuser("admin")


def space(*arguments: str) -> list[dict[str, Any]]:
    output = io.StringIO()
    call_command("space", *arguments, stdout=output)
    return [json.loads(line) for line in output.getvalue().splitlines()]


def test_start_queues_a_job_in_the_superusers_name(admin: User) -> None:
    (said,) = space("start", "demo/hello")

    job = Job.objects.get()
    assert said == {"job": str(job.pk), "state": "queued", "revision": job.revision}
    assert AuditEvent.objects.get(act="space_start").actor == admin


def test_list_shows_every_space_and_its_newest_state(admin: User) -> None:
    assert space("list") == [{"space": "demo/hello", "job": None, "state": None}]

    space("start", "DEMO/Hello")

    assert [line["state"] for line in space("list")] == ["queued"]


def test_stop_waits_until_it_has_stopped(admin: User) -> None:
    space("start", "demo/hello")

    space("stop", "demo/hello", "--wait", "5")

    assert Job.objects.get().state == JobState.CANCELLED


def test_all_spaces_stop_at_once_and_nothing_active_is_fine(admin: User) -> None:
    space("stop", "--all", "--wait", "5")
    space("start", "demo/hello")

    space("stop", "--all", "--wait", "5")

    assert Job.objects.get().state == JobState.CANCELLED


def test_a_wait_that_is_too_short_names_what_still_runs(admin: User) -> None:
    space("start", "demo/hello")
    Job.objects.update(state=JobState.STOPPING, stop_requested_at=Now())  # a worker takes its time

    with pytest.raises(CommandError, match=r"Not stopped after 0.1 s: demo/hello \(stopping\)"):
        space("stop", "demo/hello", "--wait", "0.1")


def test_who_may_not_start_it_is_told_so(admin: User) -> None:
    User.objects.create_user("stranger")

    with pytest.raises(CommandError):
        space("--as", "stranger", "start", "demo/hello")
    assert not Job.objects.exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("start", "hello"), "not of the form OWNER/REPO"),
        (("start", "demo/none"), "no such repository"),
        (("stop",), "Name a Space, or say --all"),
        (("--as", "nobody", "list"), "There is no user nobody"),
    ],
)
def test_a_wrong_word_is_answered_by_a_sentence(admin: User, arguments: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(CommandError, match=sentence):
        space(*arguments)


def test_without_a_superuser_it_asks_for_a_name() -> None:
    with pytest.raises(CommandError, match="There is no superuser; say --as USER"):
        space("list")
