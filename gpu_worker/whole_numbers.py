"""Whole numbers among the settings: read in one place, so that each is refused in the same words."""

from __future__ import annotations

from collections.abc import Mapping

from gpu_worker.errors import ConfigError
from gpu_worker.settings_values import shown

MOST_DIGITS = 18  # Python refuses to read some thousands, and no setting is as large


def number_in(text: str, *, lowest: int, highest: int) -> int | None:
    """The number that *text* is, if it lies between the two; else None."""
    if not (text.isascii() and text.isdecimal()) or len(text) > MOST_DIGITS:
        return None
    return int(text) if lowest <= int(text) <= highest else None


def whole_number(values: Mapping[str, str], name: str, *, lowest: int, highest: int) -> int | None:
    """The setting *name*; None where it is not set. Raises ConfigError with a sentence."""
    text = values.get(name)
    if text is None:
        return None
    number = number_in(text, lowest=lowest, highest=highest)
    if number is None:
        raise ConfigError(f"{name} is {shown(text)}; it is a whole number from {lowest} to {highest}.")
    return number
