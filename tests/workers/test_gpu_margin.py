"""The margin that is promised to nobody is checked at the start, not found out by a job that never fits."""

from __future__ import annotations

from typing import Any

import pytest

from workers.checks import vram_margin


@pytest.mark.parametrize(
    ("margin", "problems"), [(0, []), (512, []), (4096, []), (-1, ["workers.E003"]), (24_000, ["workers.W004"])]
)
def test_a_wrong_margin_is_told_by_a_check(settings: Any, margin: int, problems: list[str]) -> None:
    settings.OPENFACE_VRAM_MARGIN_MIB = margin

    assert [problem.id for problem in vram_margin(None)] == problems
