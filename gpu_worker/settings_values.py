"""Settings that are paths, and how a wrong value is shown: each is refused by its name, in a short sentence."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from gpu_worker.errors import ConfigError

LONGEST_SHOWN = 80  # characters of a wrong value


def shown(text: str) -> str:
    return repr(text) if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]!r}…"


def path_in(values: Mapping[str, str], name: str) -> Path | None:
    """The path of the setting *name*, there or not; None where it is not set. Raises ConfigError where it is none."""
    text = values.get(name)
    if text is None:
        return None
    try:
        os.lstat(text)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass  # who uses it says so
    except (OSError, ValueError) as problem:
        why = getattr(problem, "strerror", None) or str(problem)
        raise ConfigError(f"{name} is {shown(text)}, which cannot be a path: {why}.") from problem
    return Path(text)


def existing_file(values: Mapping[str, str], name: str) -> Path | None:
    """The file that the setting names; None where it is not set. Raises ConfigError where it cannot be read."""
    path = path_in(values, name)
    if path is None:
        return None
    try:
        if not path.is_file():
            raise ConfigError(f"{name} names {shown(str(path))}, which is not a file.")
        with path.open("rb"):
            return path.absolute()
    except OSError as problem:
        raise ConfigError(f"{name} names {shown(str(path))}, which cannot be read: {problem.strerror}.") from problem
