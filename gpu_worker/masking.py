"""Keep the secrets a job was given out of its logs, also when one is cut by the border of two reads.

A secret is known in the forms in which it usually leaks: raw, base64 (each of the three alignments), URL-encoded,
JSON-escaped, and line by line when it has several. Values shorter than MIN_SECRET_LENGTH are not masked: a log
without the letter "a" helps nobody.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

MASK = "***"
MIN_SECRET_LENGTH = 4  # characters
MIN_DERIVED_LENGTH = 8  # a shorter base64 run or line would hit innocent text


class Masker:
    """Replaces secrets in a text that arrives in pieces. One per stream: it holds back a possible beginning."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._forms = sorted({form for secret in secrets for form in _forms(secret)}, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, self._forms))) if self._forms else None
        self._first = frozenset(form[0] for form in self._forms)
        self._held = ""

    @property
    def holds_back(self) -> bool:
        return bool(self._held)

    def feed(self, text: str) -> str:
        """The part of all text so far that is safe to show, as far as it was not returned before."""
        if self._pattern is None:
            return text
        text, self._held = self._held + text, ""
        done, position = [], 0
        while True:
            beginning = self._possible_beginning(text, position)
            match = self._pattern.search(text, position)
            if match is None or match.start() >= beginning:
                # not before a possible beginning: a longer form may still come in full
                done.append(text[position:beginning])
                self._held = text[beginning:]
                return "".join(done)
            done += (text[position : match.start()], MASK)
            position = match.end()

    def end(self) -> str:
        """What was held back, at the end of the text."""
        if self._pattern is None:
            return ""
        rest, self._held = self._held, ""
        return self._pattern.sub(MASK, rest)

    @property
    def longest(self) -> int:
        """Characters of the longest form of a secret; 0 where there is none."""
        return len(self._forms[0]) if self._forms else 0

    def cut(self) -> str:
        """What was held back, where the text breaks off: it may be the beginning of a secret."""
        held, self._held = self._held, ""
        return MASK if held else ""

    def _possible_beginning(self, text: str, position: int) -> int:
        """Where a suffix of *text* starts that is the beginning of a form; the length of *text* when none is."""
        for start in range(max(position, len(text) - len(self._forms[0]) + 1), len(text)):
            if text[start] in self._first and any(
                len(form) > len(text) - start and form.startswith(text[start:]) for form in self._forms
            ):
                return start
        return len(text)


def _forms(secret: str) -> set[str]:
    if len(secret) < MIN_SECRET_LENGTH:
        return set()
    bare = secret.strip()  # it was pasted with a blank or a line end, and whoever uses it takes that off
    if bare != secret and len(bare) >= MIN_SECRET_LENGTH:
        return _forms_of(secret) | _forms_of(bare)
    return _forms_of(secret)


def _forms_of(secret: str) -> set[str]:
    forms = {secret, quote(secret, safe=""), quote_plus(secret), json.dumps(secret)[1:-1]}
    forms.add(json.dumps(secret, ensure_ascii=False)[1:-1])
    forms |= {form for form in _base64_forms(secret.encode()) if len(form) >= MIN_DERIVED_LENGTH}
    if "\n" in secret:
        forms |= {line.strip() for line in secret.splitlines() if len(line.strip()) >= MIN_DERIVED_LENGTH}
    return forms


def _base64_forms(secret: bytes) -> set[str]:
    """The characters that the secret alone decides, at each of the three offsets inside a base64 text."""
    forms = set()
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + secret).decode()
        start = -(-before * 8 // 6)
        end = (before + len(secret)) * 8 // 6
        forms |= {encoded[start:end], encoded[start:end].replace("+", "-").replace("/", "_")}
    return forms
