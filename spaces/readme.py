"""A repository's README as safe HTML: Markdown rendered, then sanitised, links kept inside the repository."""

from __future__ import annotations

import posixpath
import re
from urllib.parse import quote, unquote, urlsplit

import nh3
from django.urls import reverse
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt

from spaces.models import Space

MAX_README_BYTES = 512 * 1024  # more is a book; it can be read as a file

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


def render(text: str, *, space: Space, revision: str) -> SafeString:
    """Return a README as HTML that may stand in our own page.

    Headings begin at h2, since the page has its h1. Relative links lead to the file at `revision`; relative images to
    its raw content. Everything scripted, styled or framed is gone.
    """
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    html = parser.render(without_front_matter(text))
    html = re.sub(r"<(/?)h([1-5])\b", lambda found: f"<{found[1]}h{int(found[2]) + 1}", html)

    def inside(tag: str, attribute: str, value: str) -> str | None:
        if (tag, attribute) not in (("a", "href"), ("img", "src")):
            return value
        return _inside(value, image=tag == "img", space=space, revision=revision)

    clean = nh3.clean(
        html,
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        attribute_filter=inside,
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow ugc",
    )
    return mark_safe(clean)  # sanitised in the line above


def _inside(address: str, *, image: bool, space: Space, revision: str) -> str | None:
    """Return where a link of the README leads; None drops it."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc or address.startswith("//"):
        return address
    if not parts.path:
        return address if address.startswith("#") else None
    path = posixpath.normpath(unquote(parts.path).lstrip("/"))
    if path.startswith(".."):
        return None
    if image:
        return reverse("space_raw", args=[space.owner, space.name, revision, path])
    return f"{reverse('space_file', args=[space.owner, space.name, path])}?at={quote(revision)}"
