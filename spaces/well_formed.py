"""HTML of unknown origin as well-formed HTML of a bounded depth, so that no parser behind this one has to guess.

A browser's parser, and every sanitiser that follows its rules, repairs what is unclosed: nested elements are searched
for each new one, and unclosed formatting is opened again in each paragraph. Some kilobytes can cost minutes and
gigabytes that way. One pass over the text, whose time is in proportion to its length, leaves nothing to repair.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

DEPTH = 64  # elements within each other; deeper ones lose their tags and keep their text
FORMATTING_DEPTH = 8  # of those that a parser opens again in each paragraph
ATTRIBUTES = 4096  # characters of a tag; a longer one loses its attributes

# Possessive, each of them: what fails, fails without trying all its shorter halves.
_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]{0,15}+)(?![a-zA-Z0-9])([^<>]*+)>|<!--")
_ATTRIBUTE = re.compile(r"""(?<![\w-])([a-zA-Z][a-zA-Z-]*+)\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"'=`]++))""")
_VOID = frozenset({"br", "hr", "img"})
_SILENT = frozenset({"script", "style", "title", "template", "textarea", "noscript", "iframe", "svg", "math"})
_FORMATTING = frozenset({"a", "b", "code", "em", "i", "s", "strong"})
# What an opening tag closes when it stands at the top, as authors leave it out.
_CELL = frozenset({"td", "th"})
_CLOSES: dict[str, Collection[str]] = {
    "dd": ("dd", "dt"),
    "dt": ("dd", "dt"),
    "li": ("li",),
    "p": ("p",),
    "td": _CELL,
    "th": _CELL,
    "tr": ("tr", *_CELL),
}


def well_formed(html: str, *, tags: Collection[str], attributes: Mapping[str, Collection[str]]) -> str:
    """Return the HTML with these tags and attributes alone, each element closed where its parent ends at the latest.

    Comments and the content of scripts and the like are left out; what only looks like a tag is text.
    """
    out: list[str] = []
    open_: list[str] = []
    formatting = 0
    silent = ""  # the element whose content is left out
    position = 0

    def close() -> None:
        nonlocal formatting
        name = open_.pop()
        formatting -= name in _FORMATTING
        out.append(f"</{name}>")

    while found := _TAG.search(html, position):
        if not silent:
            out.append(html[position : found.start()].replace("<", "&lt;"))
        position = found.end()
        if found[2] is None:  # a comment; one without an end reaches to the end, as in browsers
            end = html.find("-->", found.start() + 2)
            position = len(html) if end < 0 else end + 3
            continue
        name = found[2].lower()
        if silent or name in _SILENT:
            if found[1]:
                silent = "" if name == silent else silent
            elif not silent and not found[3].endswith("/"):
                silent = name
            continue
        if name not in tags:
            continue
        if found[1]:
            if name in open_:
                while open_[-1] != name:
                    close()
                close()
            continue
        while open_ and open_[-1] in _CLOSES.get(name, ()):
            close()
        if name not in _VOID:
            if len(open_) >= DEPTH or (name in _FORMATTING and formatting >= FORMATTING_DEPTH):
                continue
            open_.append(name)
            formatting += name in _FORMATTING
        out.append(f"<{name}{_kept(found[3], attributes.get(name, ()))}>")
    if not silent:
        out.append(html[position:].replace("<", "&lt;"))
    while open_:
        close()
    return "".join(out)


def _kept(text: str, names: Collection[str]) -> str:
    kept: dict[str, str] = {}
    if names and len(text) <= ATTRIBUTES:
        for found in _ATTRIBUTE.finditer(text):
            value = next(value for value in found.groups()[1:] if value is not None)
            if (name := found[1].lower()) in names:
                kept.setdefault(name, value.replace('"', "&quot;"))
    return "".join(f' {name}="{value}"' for name, value in kept.items())
