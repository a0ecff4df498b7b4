"""Paths of files in repositories, in addresses and on pages. Git allows every byte in a name but NUL and the slash."""

from __future__ import annotations

import posixpath

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"  # stands where a name is not UTF-8


def clean(path: str) -> str | None:
    """Return the path without detours; None for one that is written so as to lead out of the repository."""
    if not path:
        return ""
    plain = posixpath.normpath(path)
    if plain == ".." or plain.startswith(("/", "../")) or "\x00" in plain:
        return None
    return "" if plain == "." else plain


def is_linkable(path: str) -> bool:
    """Whether an address can name the file. Not so with a line end, which neither addresses nor questions to git carry,
    nor where the name is not UTF-8: what stands here is not its name.
    """
    return bool(clean(path)) and not any(character in path for character in ("\n", "\r", REPLACEMENT))


def visible(name: str) -> str:
    """Return the name with what does not print, or turns the line around, as an escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in name)
