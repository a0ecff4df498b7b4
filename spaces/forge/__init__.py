"""The forge: where repositories live. Everybody outside asks `get_forge()` and knows only `Forge`."""

from __future__ import annotations

from functools import cache

from spaces.forge.base import Forge
from spaces.forge.local import LocalForge


@cache
def get_forge() -> Forge:
    """Return the forge of this installation."""
    return LocalForge()
