"""How large a source may be, and how large it is: known from git's list of a commit before a file is written."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from gpu_worker.errors import JobFailed
from gpu_worker.git import Git, GitTimeout
from gpu_worker.lfs_pointers import SMALLEST_POINTER

MIB = 1024 * 1024
_LINE = re.compile(rb"(?P<mode>\d{6}) \w+ (?P<id>[0-9a-f]{40,64}) +(?P<size>\d+|-)\t(?P<path>(?s:.*))\Z")
_GITLINK, _FILES = b"160000", (b"100644", b"100755")
# For git's list of a commit: seconds for a hundred thousand files. Only directories that hold each other and no file
# make it longer, since files beyond the limit end it. No checkout comes before it, so that one needs no such limit.
LIST_SECONDS = 120.0
LARGEST_ALIKE = 4096  # bytes of a file that may look like a Git LFS pointer; a true one has fewer
# Directories inside each other. Far more than anybody writes by hand, and less than what tools of a build can follow.
DEEPEST_PATH = 200
LFS_FOLDER = "lfs"  # of git-lfs in a repository


@dataclass(frozen=True)
class SourceLimits:
    """What this worker takes of one job, submodules included."""

    mib: int = 4096
    """Of files as git keeps them, Git LFS objects not counted."""
    files: int = 100_000
    lfs_mib: int = 51_200


@dataclass(frozen=True)
class Gitlink:
    """Where a tree names a commit of another repository."""

    path: str
    revision: str


@dataclass
class Budget:
    """What is left of the limits while one job's source comes in."""

    limits: SourceLimits
    files: int = 0
    size: int = 0
    lfs: int = 0

    def take_file(self, size: int) -> None:
        self.files += 1
        self.size += size
        if self.files > self.limits.files:
            raise _too_large(f"The repository has more than {self.limits.files} files")
        if self.size > self.limits.mib * MIB:
            raise _too_large(f"The repository's files have more than {self.limits.mib} MiB, Git LFS not counted")

    def take_lfs(self, size: int, objects: int) -> None:
        self.lfs += size
        if self.lfs > self.limits.lfs_mib * MIB:
            raise _too_large(f"The repository's {objects} Git LFS objects have more than {self.limits.lfs_mib} MiB")

    def watch(self, git: Git) -> Callable[[], None]:
        """For a fetch: ends it when what arrives is larger than all that may be left of it."""

        def look() -> None:
            if git.stored_bytes() > self.limits.mib * MIB:
                raise _too_large(f"What git sends of the repository has more than {self.limits.mib} MiB")

        return look

    def watch_lfs(self, git: Git) -> Callable[[], None]:
        """For a download of objects: git-lfs takes whatever arrives, and more of a tree than what was counted."""

        def look() -> None:
            if git.stored_bytes(LFS_FOLDER) > self.limits.lfs_mib * MIB:
                raise _too_large(
                    f"What arrives of the repository's Git LFS objects has more than {self.limits.lfs_mib} MiB"
                )

        return look


@dataclass
class Tree:
    """What a commit holds, read from ``git ls-tree`` as it comes: a tree of nested copies may list billions."""

    budget: Budget
    size: int = 0
    links: list[Gitlink] = field(default_factory=list)
    small: list[str] = field(default_factory=list)
    """Paths of the files that are as large as what may look like a Git LFS pointer."""
    _rest: bytes = b""

    @classmethod
    def of(cls, git: Git, revision: str, budget: Budget) -> Tree:
        """Raises JobFailed as soon as the list is longer than the limits allow."""
        tree = cls(budget)
        command = ("ls-tree", "-r", "-l", "-z", "--full-tree", revision)
        try:
            status = git.run(*command, read=tree.read, timeout_seconds=LIST_SECONDS)
        except GitTimeout as over:
            raise JobFailed(
                "source_too_large",
                f"To list what the commit holds took longer than {LIST_SECONDS:.0f} s, the limit of this worker: "
                "it has too many directories.",
            ) from over
        if status != 0:
            raise JobFailed("source_failed", f"git cannot list the commit {revision}.")
        return tree

    def read(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\0")
        for line in lines:
            match = _LINE.match(line)
            if match is None:
                continue  # a warning of git's own
            if match["path"].count(b"/") > DEEPEST_PATH:
                raise _too_large(f"The repository has directories inside each other, more than {DEEPEST_PATH} deep")
            path = os.fsdecode(match["path"])
            if match["mode"] == _GITLINK:
                self.budget.take_file(0)
                self.links.append(Gitlink(path, match["id"].decode()))
                continue
            size = int(match["size"])
            self.size += size
            self.budget.take_file(size)
            if match["mode"] in _FILES and SMALLEST_POINTER <= size <= LARGEST_ALIKE:
                self.small.append(path)


def _too_large(what: str) -> JobFailed:
    return JobFailed("source_too_large", f"{what}; that is the limit of this worker.")
