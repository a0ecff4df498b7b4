"""Directories that hold each other more often than Python calls itself: a repository or an app may make any number.

`shutil.rmtree` and `os.walk` recurse (before Python 3.12 and 3.13) and end with a RecursionError, which is no OSError.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

logger = logging.getLogger(__name__)


def remove_tree(place: Path) -> None:
    """Remove it with all that is in it, following no link. What resists stays, with a line in the worker's own log."""
    try:
        shutil.rmtree(place, ignore_errors=True)
    except RecursionError:
        remover = shutil.which("rm", path=os.defpath) or "rm"  # whatever our PATH is
        with suppress(OSError):
            subprocess.run([remover, "-rf", "--", str(place)], stderr=subprocess.DEVNULL, check=False)
    if os.path.lexists(place):
        logger.warning("not removed", extra={"action": "tree_left", "place": str(place)})


def files_below(place: Path) -> Iterator[os.DirEntry[str]]:
    """Everything below *place* that is no directory; links are not followed. What cannot be read is passed over."""
    folders = [str(place)]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        yield entry
        except OSError:
            continue  # gone meanwhile, or a path that is longer than the system takes
