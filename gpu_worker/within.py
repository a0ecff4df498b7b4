"""Whether a path of a repository is in it: links are the repository's own words, and lead anywhere, or in a ring."""

from __future__ import annotations

from pathlib import Path


def is_within(path: Path, directory: Path) -> bool:
    """Whether *path* is in *directory* when its links are followed; False where they end nowhere."""
    try:
        return path.resolve().is_relative_to(directory.resolve())
    except (OSError, RuntimeError):  # a ring of links: RuntimeError before Python 3.13, OSError since
        return False
