"""Real repositories for tests: made in the local forge from a few files in a dictionary."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from spaces.catalogue import sync
from spaces.forge import get_forge
from spaces.forge.base import SYSTEM
from spaces.forge.git_commands import run_git
from spaces.forge.local import repository_directory
from spaces.forge.local_writes import commit_directory, create_repository, find_repository
from spaces.models import LocalRepository, Space, Visibility

README = "---\ntitle: A title\nemoji: 🐙\nsdk: docker\n---\n# Hello\n"
FILES: Mapping[str, str] = {"README.md": README, "Dockerfile": "FROM scratch\n", "app.py": "print('hello')\n"}


def make_repository(
    full_name: str,
    *,
    files: Mapping[str, str | bytes] | None = FILES,
    topics: Iterable[str] = ("space",),
    visibility: str = "public",
) -> LocalRepository:
    """Create a repository and commit `files`; with None it stays empty."""
    owner, name = full_name.split("/")
    row = create_repository(owner, name, visibility=Visibility(visibility), topics=topics)
    if files is not None:
        commit(row, files)
    return row


def make_space(full_name: str, **wishes: object) -> Space:
    """Create a repository and its Space row."""
    return space_of(make_repository(full_name, **wishes))  # type: ignore[arg-type]


def space_of(row: LocalRepository) -> Space:
    """Return the Space row of a repository, as fresh as it is."""
    return sync(get_forge().get_repo_by_id(str(row.pk), viewer=SYSTEM))


def commit(repository: LocalRepository | str, files: Mapping[str, str | bytes]) -> str:
    """Make the default branch consist of exactly these files; return the commit."""
    row = find_repository(*repository.split("/")) if isinstance(repository, str) else repository
    with tempfile.TemporaryDirectory() as directory:
        for path, content in files.items():
            target = Path(directory) / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content.encode() if isinstance(content, str) else content)
        return commit_directory(row, Path(directory), message="A change")[0]


def set_ref(repository: LocalRepository, ref: str, commit_id: str) -> None:
    """Point a branch or tag somewhere else, as a forced push does."""
    run_git(repository_directory(repository.pk), ["update-ref", ref, commit_id])


def git(
    *arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the git that a person would run, apart from this machine's configuration."""
    clean = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_TERMINAL_PROMPT": "0"}
    return subprocess.run(
        ["git", *arguments],
        cwd=cwd,
        env={"PATH": "/usr/bin:/bin:/usr/local/bin", **clean, **(env or {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
