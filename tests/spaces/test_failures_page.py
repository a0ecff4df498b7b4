"""docs/failures.md says what people read: the portal's own words, for every failure that has a remedy."""

from __future__ import annotations

import re
from pathlib import Path

from django.utils.translation import override

from spaces.words import REASONS, REMEDIES

PAGE = Path(__file__).parents[2] / "docs" / "failures.md"


def rows() -> dict[str, list[str]]:
    """The page's tables: the cells behind each code."""
    found = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if match := re.match(r"\| `(\w+)` \| (.*) \|$", line):
            found[match[1]] = match[2].split(" | ")
    return found


def test_every_failure_with_a_remedy_has_its_row() -> None:
    assert {code for code, cells in rows().items() if len(cells) == 2} == set(REMEDIES)


def test_the_page_says_what_the_portal_says() -> None:
    page = rows()

    with override("en"):
        said = {code: [str(REASONS.get(code, REASONS["exited"]))] for code in page}
        said = {code: cells + ([str(REMEDIES[code])] if code in REMEDIES else []) for code, cells in said.items()}

    assert page == said
