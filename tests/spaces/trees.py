"""Commits that `git add` would not make: with links to commits of other repositories, built object by object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spaces.forge.git_commands import run_git
from spaces.forge.local import repository_directory
from spaces.models import LocalRepository
from tests.spaces.repositories import set_ref

WHO = {f"GIT_{role}_{field}": "tests" for role in ("AUTHOR", "COMMITTER") for field in ("NAME", "EMAIL")}


@dataclass(frozen=True)
class Link:
    """A submodule's place: the commit that belongs there."""

    revision: str


def commit_tree(row: LocalRepository, tree: Mapping[str, object]) -> str:
    """Make the default branch consist of *tree*; return the commit.

    It has texts, bytes, Links and further trees by name; names in double quotes are read as git quotes them.
    """
    directory = repository_directory(row.pk)
    root = _write_tree(row, tree)
    commit = run_git(directory, ["commit-tree", root, "-m", "A change"], extra=WHO).decode().strip()
    set_ref(row, f"refs/heads/{row.default_branch}", commit)
    return commit


def _write_tree(row: LocalRepository, tree: Mapping[str, object]) -> str:
    directory = repository_directory(row.pk)
    lines = []
    for name, what in tree.items():
        match what:
            case Link(revision):
                lines.append(f"160000 commit {revision}\t{name}")
            case Mapping():
                lines.append(f"040000 tree {_write_tree(row, what)}\t{name}")
            case _:
                content = what if isinstance(what, bytes) else str(what).encode()
                blob = run_git(directory, ["hash-object", "-w", "--stdin"], stdin=content).decode().strip()
                lines.append(f"100644 blob {blob}\t{name}")
    return run_git(directory, ["mktree", "--missing"], stdin="\n".join(lines).encode() + b"\n").decode().strip()
