"""Files are shown as text, at one commit, and never act on our origin."""

from __future__ import annotations

import html
import re

import pytest
from django.test import Client

from spaces.forge.git_commands import run_git
from spaces.forge.local import repository_directory
from spaces.forge.local_writes import find_repository
from spaces.models import Space
from tests.spaces.repositories import commit, make_space, set_ref

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


def with_names(full_name: str, names: list[bytes]) -> str:
    """Commit a tree of small files with these names, as only git itself can make them; return the commit."""
    row = find_repository(*full_name.split("/"))
    directory = repository_directory(row.pk)
    blob = run_git(directory, ["hash-object", "-w", "--stdin"], stdin=b"content\n").strip()
    entries = b"".join(b"100644 blob " + blob + b"\t" + name + b"\0" for name in names)
    tree = run_git(directory, ["mktree", "-z"], stdin=entries).decode().strip()
    author = {f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    made = run_git(directory, ["commit-tree", tree, "-m", "Odd names"], extra=author).decode().strip()
    set_ref(row, f"refs/heads/{row.default_branch}", made)
    return made


def test_names_of_any_bytes_are_shown_and_those_that_an_address_can_carry_are_linked(
    space: Space, carol: Client
) -> None:
    linked = [b"a%0Ab", b"q?x=1", b"h#x", b"b\\c", b"-rf", b"..rc", b" ", b"tab\t", b"\x1b[31m", b"n" * 3000]
    linked += ["あ".encode(), "\u202egnp.exe".encode(), b"'\"<b>&", b"{{x}}", b"C:", b"a;b", b"~", b"%", b"%ff"]
    unlinked = [b"cr\r", b"line\nfeed", b"\xff\xfe", b"\n"]
    made = with_names("alice/notes", linked + unlinked)

    answer = carol.get("/spaces/alice/notes/files/", {"at": made})

    page = answer.content.decode()
    links = [html.unescape(link) for link in re.findall(r'<li>.*?<a href="([^"]*)"', page)]
    assert answer.status_code == 200
    assert len(links) == len(linked)
    for link in links:
        file = carol.get(link)
        assert file.status_code == 200, link
        assert "content" in file.content.decode()
        raw = re.search(r'href="([^"]*/raw/[^"]*)"', file.content.decode())
        assert raw is not None
        assert carol.get(html.unescape(raw[1])).content == b"content\n", link
    for shown in (r"line\nfeed", r"\x1b[31m", r"\u202egnp.exe", "あ", "&lt;b&gt;"):
        assert shown in page
    assert "\x1b" not in page and "\u202e" not in page


@pytest.mark.parametrize(
    "path", ["a%0Ab", "%0A", "a%00b", "%FF", "..", "../x", "%2e%2e/x", "x" * 5000, "a//b", "a/../../.."]
)
def test_an_address_of_no_file_is_not_found(space: Space, carol: Client, path: str) -> None:
    for address in (f"files/{path}", f"raw/{space.head_revision}/{path}"):
        assert carol.get(f"/spaces/alice/notes/{address}").status_code == 404, address


def test_a_long_readme_is_cut_and_leads_to_the_whole(space: Space, carol: Client) -> None:
    for size in (30_000, 2_000_000):
        made = commit("alice/notes", {"README.md": "# Begin\n\n" + "word\n" * (size // 5) + "the end\n"})
        page = carol.get("/spaces/alice/notes/files/", {"at": made}).content.decode()
        assert "longer than what is shown" in page
        assert f'href="/spaces/alice/notes/raw/{made}/README.md"' in page
        assert "the end" not in page


def test_a_readme_is_rendered_once_for_a_commit(
    space: Space, carol: Client, passer_by: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = passer_by.get("/spaces/alice/notes/files/").content.decode()
    monkeypatch.delattr("spaces.readme.render")
    assert "<h2>Read me</h2>" in first
    assert "<h2>Read me</h2>" in passer_by.get("/spaces/alice/notes/files/").content.decode()
