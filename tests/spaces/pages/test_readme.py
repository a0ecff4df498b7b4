"""A README is somebody else's text in our page: it may look, and do nothing."""

from __future__ import annotations

import re

import pytest

from spaces import readme
from spaces.models import Space

SPACE = Space(owner="alice", name="notes")
AT = "0123456789abcdef0123456789abcdef01234567"


def render(text: str) -> str:
    return readme.render(text, space=SPACE, revision=AT)


@pytest.mark.parametrize(
    "hostile",
    [
        "<script>alert(1)</script>",
        '<img src="x" onerror="alert(1)">',
        '<a href="javascript:alert(1)">x</a>',
        "[x](javascript:alert(1))",
        '<iframe src="https://evil.example"></iframe>',
        '<p style="position:fixed">x</p>',
        '<form action="/logout/"><button>x</button></form>',
        '<svg onload="alert(1)"></svg>',
        '<div id="head" class="badge s-running">GPU</div>',
        "![x](data:image/svg+xml;base64,AAAA)",
    ],
)
def test_nothing_in_it_acts_or_poses_as_ours(hostile: str) -> None:
    html = render(hostile)
    tags = "".join(re.findall(r"<[^>]*>", html))
    for forbidden in ("script", "onerror", "onload", "iframe", "style", "form", "class", "id=", "data:"):
        assert forbidden not in tags


def test_the_yaml_block_is_not_shown() -> None:
    assert "emoji" not in render("---\ntitle: T\nemoji: 🐙\n---\n# Notes\n")
    assert "---" in readme.without_front_matter("# Notes\n\n---\n\nmore\n")


def test_headings_stand_below_the_pages_own() -> None:
    assert "<h2>Notes</h2>" in render("# Notes")


def test_relative_links_lead_to_the_file_at_the_same_commit() -> None:
    assert f'href="/spaces/alice/notes/files/docs/a%20b.md?at={AT}"' in render("[x](docs/a%20b.md)")
    assert f'src="/spaces/alice/notes/raw/{AT}/img/a.png"' in render("![x](./img/a.png)")


def test_links_that_lead_out_of_the_repository_lead_nowhere() -> None:
    assert "href" not in render("[x](../../../admin/)")


def test_foreign_links_say_nothing_about_the_reader() -> None:
    assert 'rel="noopener noreferrer nofollow ugc"' in render("[x](https://example.org/)")
