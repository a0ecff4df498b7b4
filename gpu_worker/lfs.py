"""Git LFS: put the objects in the place of their pointers, or say which of them cannot be had.

git-lfs does the work; what is decided here is whether there is any, whether it fits, and whether it was done: a build
must never take a pointer's text for a model.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gpu_worker.disk import ensure_room
from gpu_worker.errors import JobFailed
from gpu_worker.git import LFS_TIMEOUT_SECONDS, Git
from gpu_worker.source_limits import LARGEST_POINTER, MIB, Budget, Tree

_POINTER = re.compile(
    rb"version https://(?:git-lfs|hawser)\.github\.com/spec/v1\n(?:.*\n)*?"
    rb"oid sha256:(?P<oid>[0-9a-f]{64})\nsize (?P<size>\d{1,18})\n"
)
# git-lfs refuses to write files where it is not installed as a filter; only for its own checkout it is.
_INSTALLED = {
    "filter.lfs.clean": "git-lfs clean -- %f",
    "filter.lfs.smudge": "git-lfs smudge -- %f",
    "filter.lfs.process": "git-lfs filter-process",
    "filter.lfs.required": "true",
}
_MISSING = re.compile(rb"\[404\]|HTTP 404|does not exist|not found")


@dataclass(frozen=True)
class Pointer:
    path: str
    oid: str
    size: int


def pull_lfs(git: Git, revision: str, tree: Tree, budget: Budget) -> None:
    """Replace all pointers of the checked-out *tree* by their objects.

    Raises JobFailed: ``source_too_large``, ``disk_full``, ``git_lfs_missing``, ``lfs_object_missing``,
    ``source_failed``.
    """
    pointers = _pointers(git, tree.small)
    if not pointers:
        return
    objects = {pointer.oid: pointer.size for pointer in pointers}
    written = sum(pointer.size for pointer in pointers)  # an object under many names is written as often
    budget.take_lfs(written, len(pointers))
    if git.run("lfs", "version", read=lambda data: None) != 0:
        raise JobFailed(
            "git_lfs_missing",
            f"{pointers[0].path} is kept in Git LFS, and this worker has no git-lfs.",
        )
    ensure_room(git.tree, sum(objects.values()) + written)  # git-lfs keeps a copy until we are through
    git.say(f"Fetching {len(objects)} Git LFS objects, {sum(objects.values()) / MIB:.1f} MiB")
    fetched = git.run_through_outages(
        "lfs", "fetch", "--include=", "--exclude=", "origin", revision, timeout_seconds=LFS_TIMEOUT_SECONDS
    )
    missing, reason = fetched != 0 and git.said(_MISSING), git.last_words(but="error: failed to fetch some objects")
    git.run("lfs", "checkout", timeout_seconds=LFS_TIMEOUT_SECONDS, settings=_INSTALLED)
    left = _pointers(git, [pointer.path for pointer in pointers])
    if left:
        raise _incomplete(left, missing=missing or fetched == 0, reason=reason)


def _incomplete(left: list[Pointer], *, missing: bool, reason: str) -> JobFailed:
    first = left[0]
    what = f"{first.path}" + (f" and {len(left) - 1} more" if len(left) > 1 else "")
    if missing:
        return JobFailed(
            "lfs_object_missing",
            f"{what}: in Git LFS, but the server does not have the object ({first.oid[:12]}…, "
            f"{first.size / MIB:.1f} MiB). Push it with git lfs push --all.",
        )
    return JobFailed("source_failed", f"{what} could not be fetched from Git LFS: {reason}")


def _pointers(git: Git, paths: Iterable[str]) -> list[Pointer]:
    """The pointers among these files that .gitattributes says are LFS's; one that it does not mention is remarked."""
    found = [pointer for path in paths if (pointer := _pointer(git.tree, path)) is not None]
    if not found:
        return []
    heard = git.answer("ls-files", "-z", "--", ":(attr:filter=lfs)", limit=64 * MIB)
    tracked = set((heard or b"").decode(errors="surrogateescape").split("\0"))
    for pointer in found:
        if pointer.path not in tracked:
            git.say(f"{pointer.path} looks like a Git LFS pointer, but no .gitattributes says so: it is left as it is.")
    return [pointer for pointer in found if pointer.path in tracked]


def _pointer(tree: Path, path: str) -> Pointer | None:
    try:
        with open(tree / path, "rb", opener=_no_link) as content:
            match = _POINTER.match(content.read(LARGEST_POINTER))
    except OSError:
        return None
    return None if match is None else Pointer(path, match["oid"].decode(), int(match["size"]))


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW)
