"""Put Git LFS objects where their pointers lie: exactly those that were counted, and never through a link.

`git lfs checkout` would do it too, but for every pointer of the commit, also those that no .gitattributes mentions;
and before its version 3.7.1 it writes through a link that stands at a file's place or above it (CVE-2025-26625). Moved
objects also need no second copy on the disk.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from gpu_worker.errors import JobFailed
from gpu_worker.tree_names import shown

EMPTY = hashlib.sha256().hexdigest()


@dataclass(frozen=True)
class Pointer:
    """A file that stands for an object; *path* is relative to its tree."""

    path: str
    oid: str
    size: int
    extended: bool = False
    """Whether the object is not the file itself, but what an extension of Git LFS made of it."""

    @property
    def is_empty(self) -> bool:
        """Whether its object is the empty one, which is nowhere and needs no server."""
        return self.size == 0 and self.oid == EMPTY


def place(tree: Path, objects: Path, pointers: Sequence[Pointer]) -> list[Pointer]:
    """Replace the pointers by the objects below *objects*, which are used up. Those are left that are not whole there.

    Raises JobFailed (``source_failed``) where a link stands in the way; nothing is written then.
    """
    targets = {pointer.path: _target(tree, pointer) for pointer in pointers}
    by_object: dict[str, list[Pointer]] = defaultdict(list)
    for pointer in pointers:
        by_object[pointer.oid].append(pointer)
    left = []
    for oid, under in by_object.items():
        content = objects / oid[:2] / oid[2:4] / oid
        if under[0].is_empty:
            content.parent.mkdir(parents=True, exist_ok=True)
            content.touch()
        if _size(content) != under[0].size:
            left += under
            continue
        for pointer in under[1:]:
            copy = content.with_name("copy")
            shutil.copyfile(content, copy)
            _move(copy, targets[pointer.path])
        _move(content, targets[under[0].path])
    return left


def _move(content: Path, target: Path) -> None:
    """Put it in the place of *target*; an executable file stays one."""
    content.chmod(stat.S_IMODE(target.lstat().st_mode))
    os.replace(content, target)  # replaces a name and follows no link


def _target(tree: Path, pointer: Pointer) -> Path:
    """The pointer's own file. Raises JobFailed where its name leads, or may lead, to another."""
    target = tree / pointer.path
    facts = target.lstat()
    reached = target.parent.resolve() == tree.resolve() / PurePosixPath(pointer.path).parent
    if not (reached and stat.S_ISREG(facts.st_mode) and facts.st_nlink == 1):
        raise JobFailed(
            "source_failed",
            f"{shown(pointer.path)} is kept in Git LFS, and a link stands in its place or above it. "
            "Nothing is written there.",
        )
    return target


def _size(file: Path) -> int | None:
    try:
        return file.lstat().st_size
    except OSError:
        return None
