"""What a command has to say, to people and to programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

EXIT_OK, EXIT_UNEXPECTED, EXIT_CONFIG, EXIT_FINAL = 0, 1, 2, 78


@dataclass(frozen=True)
class Answer:
    facts: Mapping[str, object]
    """For ``--json``: one object."""
    text: str
    code: int = EXIT_OK
