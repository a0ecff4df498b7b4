"""Git LFS: put the objects in the place of their pointers, or say which of them cannot be had.

git-lfs brings the objects; what is decided here is whether there are any, whether they fit, and whether all came: a
build must never take a pointer's text for a model. The size that a pointer tells is a claim of whoever pushed it, so
nothing is done for its sake, no room made least of all, before the server has said the same.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpu_worker.disk import ensure_room
from gpu_worker.errors import JobFailed
from gpu_worker.git import LFS_TIMEOUT_SECONDS, OUTAGE, Git
from gpu_worker.lfs_placing import Pointer, place
from gpu_worker.lfs_pointers import POINTER_END, PointerText, read_pointer
from gpu_worker.lfs_server import sizes_on_server
from gpu_worker.source_limits import LFS_FOLDER, MIB, Budget, Tree
from gpu_worker.tree_names import shown

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
    asked = [pointer for pointer in pointers if not pointer.is_empty]  # git-lfs never sends or fetches nothing
    fetched = _fetch(git, revision, asked, budget) if asked else 0
    left = place(git.tree, git.repository / LFS_FOLDER / "objects", pointers)
    if left:
        missing = fetched == 0 or git.said(_MISSING)
        why = git.last_words(but="error: failed to fetch some objects")
        raise _incomplete(left, missing=missing, reason=BROKE_OFF if git.said(OUTAGE) else why)


def _fetch(git: Git, revision: str, pointers: Sequence[Pointer], budget: Budget) -> int:
    """Bring the objects of these pointers into the repository; the exit code of git-lfs."""
    written = sum(pointer.size for pointer in pointers)  # an object under many names is written as often
    budget.take_lfs(written, len(pointers))
    if git.run("lfs", "version", read=lambda data: None) != 0:
        raise JobFailed(
            "git_lfs_missing",
            f"{shown(pointers[0].path)} is kept in Git LFS, and this worker has no git-lfs.",
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
    return fetched


def _refuse_extended(pointers: list[Pointer]) -> None:
    """What passed a program of its author's before it became an object would have to pass it again, backwards."""
    for pointer in pointers:
        if pointer.extended:
            raise JobFailed("source_failed", f"{shown(pointer.path)} needs an extension of Git LFS; workers have none.")


def _proven(git: Git, pointers: Sequence[Pointer]) -> dict[str, int]:
    """The sizes of the pointers' objects, as the server has them. Raises JobFailed where one is not there, or other."""
    sizes = sizes_on_server(git.access, git.around, {pointer.oid: pointer.size for pointer in pointers})
    missing = [pointer for pointer in pointers if pointer.oid not in sizes]
    if missing:
        raise _incomplete(missing, missing=True)
    for pointer in pointers:
        if pointer.size != sizes[pointer.oid]:
            raise JobFailed(
                "source_failed",
                f"{shown(pointer.path)}: its Git LFS pointer tells a size of {pointer.size} bytes, and the object on "
                f"the server has {sizes[pointer.oid]}.",
            )
    return sizes


def _incomplete(left: list[Pointer], *, missing: bool, reason: str = "") -> JobFailed:
    first = left[0]
    what = shown(first.path) + (f" and {len(left) - 1} more" if len(left) > 1 else "")
    if missing:
        return JobFailed(
            "lfs_object_missing",
            f"{what}: in Git LFS, but the server does not have the object ({first.oid[:12]}…, "
            f"{first.size / MIB:.1f} MiB). Push it with git lfs push --all.",
        )
    return JobFailed("source_failed", f"{what} could not be fetched from Git LFS: {reason}")


def _pointers(git: Git, paths: Sequence[str]) -> list[Pointer]:
    """The pointers among these files that .gitattributes says are LFS's. What only looks like one is remarked."""
    found = dict(_read(git.tree, paths))
    if not found:
        return []
    heard = git.answer("ls-files", "-z", "--", ":(attr:filter=lfs)", limit=64 * MIB)
    tracked = set(os.fsdecode(heard or b"").split("\0"))
    pointers, alike = [], []
    for path, text in found.items():
        if isinstance(text, str):
            alike += [(path, text)] if path in tracked else []
        elif path not in tracked:
            alike.append((path, "no .gitattributes says so"))
        else:
            pointers.append(Pointer(path, text.oid, text.size, extended=text.extended))
    git.say_each(f"{shown(path)} looks like a Git LFS pointer, but {why}: it is left as it is." for path, why in alike)
    return pointers


def _read(tree: Path, paths: Sequence[str]) -> Iterator[tuple[str, PointerText | str]]:
    for path in paths:
        try:
            with open(tree / path, "rb", opener=_no_link) as content:
                text = read_pointer(content.read(POINTER_END))
        except OSError:
            continue
        if text is not None:
            yield path, text


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW)
