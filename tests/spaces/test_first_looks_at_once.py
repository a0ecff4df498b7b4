"""Many people may look at a new Space, or import it, at the same moment: it is one Space."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.core.management import call_command
from django.db import connection

from jobs.models import Job
from spaces import launch
from spaces.access import get_space, visible_spaces
from spaces.forge import get_forge
from spaces.forge.base import SYSTEM
from spaces.models import LocalRepository, Space
from tests.spaces.repositories import README, make_repository

pytestmark = pytest.mark.django_db(transaction=True)


def at_once(functions: list[Callable[[], Any]]) -> list[Any]:
    """Run the functions in threads, each on a connection of its own; errors are raised."""

    def one(function: Callable[[], Any]) -> Any:
        try:
            return function()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(functions)) as pool:
        return list(pool.map(one, functions))


def test_first_looks_make_one_row() -> None:
    make_repository("alice/app")

    looks: list[Callable[[], Any]] = [lambda: get_space(AnonymousUser(), "alice", "app").pk] * 6
    looks += [lambda: visible_spaces(AnonymousUser())[0].pk] * 6
    seen = at_once(looks)

    assert set(seen) == {Space.objects.get().pk}


def test_looks_while_names_change_hands_end_with_the_forge_s_names() -> None:
    one, two = make_repository("alice/one"), make_repository("alice/two")
    visible_spaces(AnonymousUser())
    LocalRepository.objects.filter(pk=one.pk).update(name="away")
    LocalRepository.objects.filter(pk=two.pk).update(name="one")

    at_once([lambda: visible_spaces(AnonymousUser())] * 8)

    assert {space.repository_id: space.name for space in visible_spaces(AnonymousUser())} == {
        str(one.pk): "away",
        str(two.pk): "one",
    }


def test_starts_at_the_same_moment_are_one_job() -> None:
    make_repository("alice/app")
    owner = User.objects.create_user("alice")

    jobs = at_once([lambda: launch.start(get_space(owner, "alice", "app"), user=owner).pk] * 8)

    assert set(jobs) == {Job.objects.get().pk}


def test_imports_at_the_same_moment_make_one_repository_with_whole_commits(tmp_path: Path) -> None:
    def directory(number: int) -> Path:
        path = tmp_path / str(number)
        path.mkdir()
        (path / "README.md").write_text(README)
        (path / "n").write_text(str(number))
        return path

    def import_one(path: Path) -> str:
        # Somebody else's commit in between is a sentence, and then a second try.
        for _ in range(20):
            try:
                call_command("import_space", str(path), "alice/app", "--json", stdout=StringIO())
                return "done"
            except Exception as error:
                assert "changed by somebody else" in str(error)
        return "never"

    paths = [directory(number) for number in range(6)]
    done = at_once([lambda path=path: import_one(path) for path in paths])  # type: ignore[misc]

    assert done == ["done"] * 6
    repo = get_forge().get_repo("alice", "app", viewer=SYSTEM)
    assert LocalRepository.objects.count() == Space.objects.count() == 1
    assert get_forge().read_file(repo, get_forge().head(repo).sha, "n", limit=10) in [b"%d" % n for n in range(6)]
