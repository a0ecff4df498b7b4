"""A repository's README as safe HTML: Markdown rendered, then sanitised, links kept inside the repository."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, unquote, urlsplit

import nh3
from django.urls import reverse
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt

from spaces.file_paths import is_linkable
from spaces.forge import get_forge
from spaces.forge.base import Repository
from spaces.forge.errors import NotFound, TooLarge
from spaces.well_formed import well_formed

MAX_README_BYTES = 1024 * 1024  # more is not even read
SHOWN_CHARACTERS = 20 * 1024  # Markdown is rendered at 50 to 100 kB/s here; more is a book, and can be read as a file
BRACKETS = 2000  # where each could begin a link, all the rest is searched for its end: with more there are no links

_FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n.*?\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_TAGS = {
    *("a", "abbr", "b", "blockquote", "br", "code", "dd", "del", "details", "div", "dl", "dt", "em", "h1", "h2", "h3"),
    *("h4", "h5", "h6", "hr", "i", "img", "kbd", "li", "ol", "p", "pre", "s", "span", "strong", "sub"),
    *("summary", "sup", "table", "tbody", "td", "th", "thead", "tr", "ul"),
}
_ATTRIBUTES = {"a": {"href", "title"}, "img": {"src", "alt", "title", "width", "height"}, "ol": {"start"}}


def without_front_matter(text: str) -> str:
    """Return the text after the YAML block at its top, if there is one."""
    return _FRONT_MATTER.sub("", text, count=1)


@dataclass(frozen=True)
class Readme:
    """A README as it is shown. `cut`: there is more of it than is shown."""

    path: str
    html: SafeString
    cut: bool = False


def read(repo: Repository, revision: str, path: str) -> Readme | None:
    """Return the README that lies at `path` in a commit; None where it cannot be read after all.

    The newest few are kept, since a commit never changes; an error is not kept.
    """
    try:
        return _read(repo, revision, path)
    except NotFound:
        return None


@lru_cache(maxsize=32)
def _read(repo: Repository, revision: str, path: str) -> Readme:
    try:
        content = get_forge().read_file(repo, revision, path, limit=MAX_README_BYTES)
    except TooLarge:
        return Readme(path, SafeString(""), cut=True)
    text = without_front_matter(content.decode("utf-8", "replace"))
    shown = beginning(text)
    html = render(shown, owner=repo.owner, name=repo.name, revision=revision)
    return Readme(path, html, cut=len(shown) < len(text))


def beginning(text: str) -> str:
    """Return what of a README is shown: whole lines, where they are not endless."""
    if len(text) <= SHOWN_CHARACTERS:
        return text
    end = text.rfind("\n", 0, SHOWN_CHARACTERS)
    return text[: end if end > SHOWN_CHARACTERS // 2 else SHOWN_CHARACTERS]


def render(text: str, *, owner: str, name: str, revision: str) -> SafeString:
    """Return Markdown of at most SHOWN_CHARACTERS as HTML that may stand in our own page.

    Headings begin at h2, since the page has its h1. Relative links lead to the file at `revision`; relative images to
    its raw content. Everything scripted, styled or framed is gone.
    """
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    if text.count("[") > BRACKETS:
        parser.disable(["link", "image"])
    html = parser.render(text)
    html = re.sub(r"<(/?)h([1-5])\b", lambda found: f"<{found[1]}h{int(found[2]) + 1}", html)

    def inside(tag: str, attribute: str, value: str) -> str | None:
        if (tag, attribute) not in (("a", "href"), ("img", "src")):
            return value
        return _inside(value, image=tag == "img", owner=owner, name=name, revision=revision)

    clean = nh3.clean(
        well_formed(html, tags=_TAGS, attributes=_ATTRIBUTES),
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        attribute_filter=inside,
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow ugc",
    )
    return mark_safe(clean)  # sanitised in the line above


def _inside(address: str, *, image: bool, owner: str, name: str, revision: str) -> str | None:
    """Return where a link of the README leads; None drops it. Never raises: nobody would hear of it."""
    try:
        parts = urlsplit(address)
    except ValueError:  # "http://["
        return None
    if parts.scheme or parts.netloc or address.startswith("//"):
        return address
    if not parts.path:
        return address if address.startswith("#") else None
    path = posixpath.normpath(unquote(parts.path).lstrip("/"))
    if not is_linkable(path):
        return None
    if image:
        return reverse("space_raw", args=[owner, name, revision, path])
    return f"{reverse('space_file', args=[owner, name, path])}?at={quote(revision)}"
