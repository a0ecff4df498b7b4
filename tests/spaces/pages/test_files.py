"""Files are shown as text, at one commit, and never act on our origin."""

from __future__ import annotations

import pytest
from django.test import Client

from spaces.models import Space
from tests.spaces.repositories import commit, make_space

pytestmark = pytest.mark.django_db

HOSTILE = "<!doctype html><script>fetch('/spaces/alice/notes/stop', {method: 'POST'})</script>"


@pytest.fixture
def space() -> Space:
    return make_space(
        "alice/notes",
        files={
            "README.md": "---\ntitle: Notes\n---\n# Read me\n",
            "page.html": HOSTILE,
            "docs/a.txt": "in a directory\n",
            "model.bin": b"\x00\x01\x02",
            "picture.svg": "<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>",
        },
    )


def test_the_tree_and_the_readme(space: Space, carol: Client) -> None:
    text = carol.get("/spaces/alice/notes/files/").content.decode()
    for name in ("docs", "page.html", "model.bin", "<h2>Read me</h2>"):
        assert name in text


def test_a_directory_and_a_file_in_it(space: Space, carol: Client) -> None:
    assert "a.txt" in carol.get("/spaces/alice/notes/files/docs").content.decode()
    assert "in a directory" in carol.get("/spaces/alice/notes/files/docs/a.txt").content.decode()


def test_a_page_is_shown_as_its_source(space: Space, carol: Client) -> None:
    text = carol.get("/spaces/alice/notes/files/page.html").content.decode()
    assert "&lt;script&gt;fetch(" in text
    assert "<script>fetch(" not in text


def test_binary_files_are_offered_as_downloads(space: Space, carol: Client) -> None:
    assert "This file is not text" in carol.get("/spaces/alice/notes/files/model.bin").content.decode()


@pytest.mark.parametrize("name", ["page.html", "picture.svg", "model.bin"])
def test_raw_files_are_downloads_that_cannot_act(space: Space, carol: Client, name: str) -> None:
    answer = carol.get(f"/spaces/alice/notes/raw/{space.head_revision}/{name}")
    assert answer.status_code == 200
    assert answer["Content-Disposition"] == "attachment"
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Content-Security-Policy"].startswith("sandbox")
    assert not answer["Content-Type"].startswith("text/html")


def test_an_older_commit_stays_readable(space: Space, carol: Client) -> None:
    old = space.head_revision
    new = commit("alice/notes", {"README.md": "# New\n"})
    assert "in a directory" in carol.get(f"/spaces/alice/notes/files/docs/a.txt?at={old}").content.decode()
    assert carol.get(f"/spaces/alice/notes/files/docs/a.txt?at={new}").status_code == 404


@pytest.mark.parametrize("at", ["f" * 40, "HEAD", "--all", "main", "0"])
def test_only_a_full_id_that_a_branch_contains_is_a_commit(space: Space, carol: Client, at: str) -> None:
    assert carol.get("/spaces/alice/notes/files/", {"at": at}).status_code == 404


def test_an_empty_repository_says_so(carol: Client) -> None:
    make_space("alice/empty", files=None)
    assert "The repository is empty" in carol.get("/spaces/alice/empty/files/").content.decode()
