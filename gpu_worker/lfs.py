"""Git LFS: put the objects in the place of their pointers, or say which of them cannot be had.

git-lfs brings the objects; what is decided here is whether there are any, whether they fit, and whether all came: a
build must never take a pointer's text for a model. The size that a pointer tells is a claim of whoever pushed it, so
nothing is done for its sake, no room made least of all, before the server has said the same.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from gpu_worker.disk import ensure_room
from gpu_worker.errors import JobFailed
from gpu_worker.git import LFS_TIMEOUT_SECONDS, OUTAGE, Git
from gpu_worker.lfs_placing import Pointer, place
from gpu_worker.lfs_server import sizes_on_server
from gpu_worker.source_limits import LARGEST_POINTER, LFS_FOLDER, MIB, Budget, Tree

_POINTER = re.compile(
    rb"version https://(?:git-lfs|hawser)\.github\.com/spec/v1\n(?P<more>(?:.*\n)*?)"
    rb"oid sha256:(?P<oid>[0-9a-f]{64})\nsize (?P<size>\d{1,18})\n"
)
BROKE_OFF = "the connection to the control plane broke off again and again."
_MISSING = re.compile(rb"\[404\]|HTTP 404|does not exist|not found")


def pull_lfs(git: Git, revision: str, tree: Tree, budget: Budget) -> None:
    """Replace all pointers of the checked-out *tree* by their objects.

    Raises JobFailed: ``source_too_large``, ``disk_full``, ``git_lfs_missing``, ``lfs_object_missing``,
    ``source_failed``.
    """
    pointers = _pointers(git, tree.small)
    if not pointers:
        return
    _refuse_extended(pointers)
    written = sum(pointer.size for pointer in pointers)  # an object under many names is written as often
    budget.take_lfs(written, len(pointers))
    if git.run("lfs", "version", read=lambda data: None) != 0:
        raise JobFailed(
            "git_lfs_missing",
            f"{pointers[0].path} is kept in Git LFS, and this worker has no git-lfs.",
        )
    sizes = _proven(git, pointers)
    ensure_room(git.tree, written)
    git.say(f"Fetching {len(sizes)} Git LFS objects, {sum(sizes.values()) / MIB:.1f} MiB")
    watch = budget.watch_lfs(git)
    fetched = git.run_through_outages(
        *("lfs", "fetch", "--include=", "--exclude=", "origin", revision),
        watch=watch,
        timeout_seconds=LFS_TIMEOUT_SECONDS,
    )
    watch()  # what came since it looked last
    left = place(git.tree, git.repository / LFS_FOLDER / "objects", pointers)
    if left:
        missing = fetched == 0 or git.said(_MISSING)
        why = git.last_words(but="error: failed to fetch some objects")
        raise _incomplete(left, missing=missing, reason=BROKE_OFF if git.said(OUTAGE) else why)


def _refuse_extended(pointers: list[Pointer]) -> None:
    """What passed a program of its author's before it became an object would have to pass it again, backwards."""
    for pointer in pointers:
        if pointer.extended:
            raise JobFailed("source_failed", f"{pointer.path} needs an extension of Git LFS; workers have none.")


def _proven(git: Git, pointers: list[Pointer]) -> dict[str, int]:
    """The sizes of the pointers' objects, as the server has them. Raises JobFailed where one is not there, or other."""
    sizes = sizes_on_server(git.access, git.around, {pointer.oid: pointer.size for pointer in pointers})
    missing = [pointer for pointer in pointers if pointer.oid not in sizes]
    if missing:
        raise _incomplete(missing, missing=True)
    for pointer in pointers:
        if pointer.size != sizes[pointer.oid]:
            raise JobFailed(
                "source_failed",
                f"{pointer.path}: its Git LFS pointer tells a size of {pointer.size} bytes, and the object on the "
                f"server has {sizes[pointer.oid]}.",
            )
    return sizes


def _incomplete(left: list[Pointer], *, missing: bool, reason: str = "") -> JobFailed:
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
    if match is None:
        return None
    return Pointer(path, match["oid"].decode(), int(match["size"]), extended=b"ext-" in match["more"])


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW)
