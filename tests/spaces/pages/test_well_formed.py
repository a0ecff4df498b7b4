"""HTML of unknown origin leaves nothing for a parser to repair, whatever was unclosed in it."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spaces.well_formed import DEPTH, FORMATTING_DEPTH, well_formed

TAGS = {"a", "b", "div", "em", "hr", "i", "img", "li", "p", "table", "td", "tr", "ul"}
ATTRIBUTES = {"a": {"href"}, "img": {"src", "alt"}}
PIECES = [
    *(
        "<b>",
        "</b>",
        "<b x=1>",
        "<p>",
        "</p>",
        "<div>",
        "</div>",
        "<table>",
        "</table>",
        "<td>",
        "<tr>",
        "<li>",
        "<a href=x>",
    ),
    *(
        "<a href='\"'>",
        '<img alt="a > b">',
        "<img alt='<b>'>",
        "<hr>",
        "<!--",
        "-->",
        "<script>",
        "</script>",
        "<",
        ">",
        "</",
    ),
    *("<center>", "</center>", "<svg/>", "<svg>", "</svg>", '"', "'", "=", "text", "&lt;", "&", "<a ", "\n"),
]


def made(html: str) -> str:
    return well_formed(html, tags=TAGS, attributes=ATTRIBUTES)


class Strict(HTMLParser):
    """Fails at everything that would have to be repaired."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.deepest = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS
        assert all(name in ATTRIBUTES.get(tag, ()) for name, _ in attrs)
        if tag not in ("hr", "img"):
            self.open.append(tag)
            self.deepest = max(self.deepest, len(self.open))
            assert sum(name in ("a", "b", "em", "i") for name in self.open) <= FORMATTING_DEPTH

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_comment(self, data: str) -> None:
        raise AssertionError("a comment")


def check(html: str) -> int:
    """Read the result strictly; return how deep it is."""
    strict = Strict()
    strict.feed(made(html))
    strict.close()
    assert strict.open == []
    return strict.deepest


@pytest.mark.parametrize(
    ("html", "result"),
    [
        ("<p>a<p>b", "<p>a</p><p>b</p>"),
        ("<ul><li>a<li>b</ul>", "<ul><li>a</li><li>b</li></ul>"),
        ("<b>a</i></b></b>", "<b>a</b>"),
        ("<div><b>a</div>b", "<div><b>a</b></div>b"),
        ("<IMG SRC='a' onerror=b>", '<img src="a">'),
        ("<a href='\"'>x</a>", '<a href="&quot;">x</a>'),
        ("<hr/>a<!-- <b> -->b<!-- c", "<hr>ab"),
        ("<script>if (a<b) </b>x</script>y<style>z", "y"),
        ("<center>a</center>", "a"),
        ("1 < 2 <", "1 &lt; 2 &lt;"),
        ("&lt;b&gt; &amp;", "&lt;b&gt; &amp;"),
        (f"<a href={'x' * 5000}>y</a>", "<a>y</a>"),
    ],
)
def test_what_is_unclosed_is_closed_and_what_is_foreign_is_left_out(html: str, result: str) -> None:
    assert made(html) == result


@pytest.mark.parametrize("piece", ["<div>", "<div></p>", "<div><table></div>", "<table><tr><td>", "<b>", "<b x=1>"])
def test_no_nesting_goes_deeper_than_the_limit(piece: str) -> None:
    assert check(piece * 1000 + "text") <= DEPTH
    assert "text" in made(piece * 1000 + "text")


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(st.lists(st.sampled_from(PIECES), max_size=40))
def test_whatever_comes_in_nothing_is_left_to_repair(pieces: list[str]) -> None:
    check("".join(pieces))
