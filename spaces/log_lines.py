"""Log text as safe HTML, line by line. Pure.

What a program prints is hostile until shown otherwise: everything is escaped, of all escape sequences only colours and
weights are understood, and they become classes. Of a line that a progress bar wrote again and again only the last
version is kept. A colour never crosses the end of a line, so that any line can be drawn alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe

MAX_LINE_CHARACTERS = 8_000  # a minified file printed by accident must not freeze the reader's browser

_ESCAPES = re.compile(
    r"\x1b\[(?P<sgr>[0-9;:]{0,64})m"  # colours and weights: the ones understood
    r"|\x1b\[[0-?]*[ -/]*[@-~]"  # every other control sequence: cursor, erase, modes
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"  # operating system commands (titles, links) and other strings
    r"|\x1b[ -/]*[0-~]?"  # two-character escapes, and one that was cut off
    r"|[\x00-\x08\x0a-\x1f\x7f-\x9f]"  # control characters but the tab
    r"|[\u202a-\u202e\u2066-\u2069\u200e\u200f]"  # marks that would make text read in another order than it is
)
_BUILDKIT = re.compile(r"#[0-9]+ (?P<seconds>[0-9]{1,7}\.[0-9]+) (?P<text>.*)", re.DOTALL)
_TROUBLE = re.compile(
    r"(?i:^\s*(?:>>>\s*|git:\s)?(?:error|fatal|panic|critical)\b)"
    r"|^Traceback \(most recent call last\)"
    r"|^[\w.]*(?:Error|Exception)(?::|$)"
    r"|\b(?:ERROR|CRITICAL|FATAL)\b"
)
_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")


@dataclass(frozen=True)
class Line:
    """One line to draw. `when` is a time the builder printed itself; `trouble` marks lines that look like the cause."""

    html: SafeString
    text: str
    when: str = ""
    trouble: bool = False


def cut_overwritten(rest: str) -> tuple[str, str]:
    """Split an unfinished line into what a carriage return has overwritten for good, and what is still shown."""
    shown = last_version(rest)
    at = rest.rfind(shown) if shown else len(rest)
    return rest[:at], rest[at:]


def last_version(raw: str) -> str:
    """Return what a terminal would show of a line that was overwritten with carriage returns."""
    return next((part for part in reversed(raw.split("\r")) if part), "")


def split(text: str) -> tuple[list[str], str]:
    """Return the complete lines of a text and the beginning of the line that is still being written."""
    *complete, rest = text.split("\n")
    return complete, rest


def render(raw: str) -> Line:
    """Return one line of a log, without its line break, ready to draw."""
    shown = last_version(raw)
    when = ""
    timed = _BUILDKIT.fullmatch(shown)
    if timed:
        when, shown = f"{float(timed['seconds']):.1f} s", timed["text"]
    if len(shown) > MAX_LINE_CHARACTERS:
        shown = shown[:MAX_LINE_CHARACTERS] + " …"
    plain = _ESCAPES.sub("", shown)
    return Line(html=_coloured(shown), text=plain, when=when, trouble=_TROUBLE.search(plain) is not None)


def as_item(line: Line, *, still_open: bool = False) -> SafeString:
    """Return a line as a list item. One that is still being written carries a mark by which a reader replaces it."""
    return format_html(
        "<li{}{}><span>{}</span><span>{}</span></li>",
        mark_safe(" data-open" if still_open else ""),
        mark_safe(' class="hit"' if line.trouble else ""),
        line.when,
        line.html,
    )


def _coloured(text: str) -> SafeString:
    """Return the text escaped, its colours as spans with classes, its other control sequences gone."""
    parts: list[str] = []
    classes: dict[str, str] = {}
    position = 0
    for found in _ESCAPES.finditer(text):
        parts.append(_span(text[position : found.start()], classes))
        position = found.end()
        if found["sgr"] is not None:
            _apply(found["sgr"], classes)
    parts.append(_span(text[position:], classes))
    return mark_safe("".join(parts))  # built from escaped pieces and class names of ours


def _span(text: str, classes: dict[str, str]) -> str:
    if not text or not classes:
        return escape(text)
    return f'<span class="{" ".join(classes.values())}">{escape(text)}</span>'


def _apply(parameters: str, classes: dict[str, str]) -> None:
    """Change the classes as one SGR sequence says (ECMA-48, 8.3.117); what is not understood changes nothing."""
    codes = iter(int(code) if code else 0 for code in re.split("[;:]", parameters))
    for code in codes:
        if code == 0:
            classes.clear()
        elif code in (1, 2, 3, 4):
            kind = {1: "bold", 2: "dim", 3: "italic", 4: "underline"}[code]
            classes[kind] = f"sgr-{kind}"
        elif code == 22:
            classes.pop("bold", None)
            classes.pop("dim", None)
        elif code in (23, 24):
            classes.pop({23: "italic", 24: "underline"}[code], None)
        elif 30 <= code <= 37 or 90 <= code <= 97:
            classes["colour"] = f"sgr-{_COLOURS[code % 10]}"
        elif code == 38:
            _extended_colour(codes, classes)
        elif code == 48:
            _extended_colour(codes, {})
        elif code == 39:
            classes.pop("colour", None)


def _extended_colour(codes: Iterator[int], classes: dict[str, str]) -> None:
    """Read the rest of `38;5;n` or `38;2;r;g;b`; only the first sixteen colours have a class."""
    mode = next(codes, None)
    if mode == 5:
        number = next(codes, None)
        if number is not None and 0 <= number < 16:
            classes["colour"] = f"sgr-{_COLOURS[number % 8]}"
        else:
            classes.pop("colour", None)
    elif mode == 2:
        for _ in range(3):
            next(codes, None)
        classes.pop("colour", None)
