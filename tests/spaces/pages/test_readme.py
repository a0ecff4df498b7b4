"""A README is somebody else's text in our page: it may look, and do nothing."""

from __future__ import annotations

import re

import pytest

from spaces import readme

AT = "0123456789abcdef0123456789abcdef01234567"


def render(text: str) -> str:
    return readme.render(readme.without_front_matter(text), owner="alice", name="notes", revision=AT)


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


@pytest.mark.parametrize(
    "target",
    ["a%0Ab", "http://[", "a%ffb", "%00", "%2e%2e/x", "/../x", "..", "&#xD800;%0a", "\\a%0d%0ab", "?x", "a/" * 3000],
)
def test_an_address_that_leads_nowhere_is_dropped_without_noise(target: str, recwarn: pytest.WarningsRecorder) -> None:
    html = render(f'[x]({target}) <a href="{target}">y</a> <img src="{target}" alt="z">')
    assert "x" in html and "y" in html
    assert not re.search(r'(href|src)="(?!/spaces/alice/notes/)', html)
    assert not recwarn.list


def test_odd_names_are_linked_as_what_they_are() -> None:
    assert "/files/..rc?at=" in render("[x](..rc)")
    assert "/files/a%3Fb%23c%25d%5Ce?at=" in render("[x](a%3Fb%23c%25d%5Ce)")
    assert "/files/-rf?at=" in render("[x](-rf)")


@pytest.mark.parametrize(
    "piece",
    ["<div>", "<b x={}>", "<p><b>", "[", "![", "[a\n", "<a ", "<!--", "> ", "*a **b ", "<script>", "<table><td>"],
)
def test_a_readme_that_is_all_nesting_is_rendered_shallowly(piece: str) -> None:
    text = readme.beginning("".join(piece.replace("{}", str(n)) for n in range(readme.SHOWN_CHARACTERS)))
    html = render(text + "\n\n" + "word\n\n" * 100)
    assert len(html) < 8 * readme.SHOWN_CHARACTERS


def test_a_readme_of_too_many_brackets_has_no_links_and_a_usual_one_has() -> None:
    assert "<a" in render("[x](y) " * 100)
    assert "<a" not in render("[x](y) " * (readme.BRACKETS + 1))


def test_a_long_readme_ends_with_a_whole_line() -> None:
    text = "a line of it\n" * 10_000
    assert len(readme.beginning(text)) <= readme.SHOWN_CHARACTERS
    assert text.startswith(readme.beginning(text) + "\n")
    assert len(readme.beginning("x" * 100_000)) == readme.SHOWN_CHARACTERS
    assert readme.beginning("short") == "short"
