"""Creating local repositories and committing a directory to them. The only writer of the repositories on disk."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from django.db import IntegrityError, transaction

from spaces.forge.errors import Conflict, Forbidden, NotFound, TooLarge, Unavailable
from spaces.forge.git_commands import GitFailed, run_git
from spaces.forge.local import is_name, repository_directory
from spaces.models import LocalRepository, Visibility

COMMIT_TIMEOUT_SECONDS = 600.0  # a working tree of some gigabytes is read and compressed once
_AUTHOR = {
    f"GIT_{role}_{field}": value
    for role in ("AUTHOR", "COMMITTER")
    for field, value in (("NAME", "OpenFace import"), ("EMAIL", "import@openface.invalid"))
}


def create_repository(
    owner: str, name: str, *, visibility: Visibility = Visibility.PRIVATE, topics: Iterable[str] = ()
) -> LocalRepository:
    """Create an empty repository. Conflict: the name is taken, in any spelling of its case."""
    for what, text in (("an owner", owner), ("a repository", name)):
        if not is_name(text):
            raise Forbidden(
                f"{text!r} cannot be the name of {what}: at most 100 letters, digits, '-', '_' and single dots."
            )
    try:
        with transaction.atomic():
            row = LocalRepository.objects.create(
                owner=owner, name=name, visibility=visibility, topics=sorted({topic.lower() for topic in topics})
            )
            _make_bare(repository_directory(row.pk), row.default_branch)
    except IntegrityError as error:
        raise Conflict(f"There is a repository {owner}/{name} already.") from error
    return row


def commit_directory(row: LocalRepository, directory: Path, *, message: str) -> tuple[str, bool]:
    """Make the default branch's tree equal to `directory`; return the head commit and whether it is a new one.

    The author's `.gitignore` counts; a `.git` inside is left out. Conflict: somebody else committed meanwhile.
    """
    repository = repository_directory(row.pk)
    if not repository.is_dir():
        raise Unavailable(f"The files of {row} are missing on the server ({repository.name}).", retry_after=60)
    branch = f"refs/heads/{row.default_branch}"
    with tempfile.TemporaryDirectory(prefix="openface-index-") as scratch:
        extra = {"GIT_INDEX_FILE": str(Path(scratch) / "index"), **_AUTHOR}
        work_tree = f"--work-tree={directory.absolute()}"
        try:
            run_git(
                repository,
                [work_tree, "add", "--all", "--", "."],
                extra=extra,
                timeout=COMMIT_TIMEOUT_SECONDS,
                cwd=directory,
            )
            tree = _text(run_git(repository, ["write-tree"], extra=extra))
            parent = _resolve(repository, f"{branch}^{{commit}}")
            if parent and _resolve(repository, f"{parent}^{{tree}}") == tree:
                return parent, False
            parents = ["-p", parent] if parent else []
            commit = _text(run_git(repository, ["commit-tree", tree, *parents, "-m", message], extra=extra))
        except GitFailed as error:
            raise Forbidden(f"git cannot take {directory.name}: {error}") from error
        except TooLarge as error:  # git wrote megabytes of complaints
            raise Forbidden(f"git cannot take {directory.name}.") from error
        try:
            # Compare and swap: an empty old value means that the branch must not exist yet.
            run_git(repository, ["update-ref", branch, commit, parent or "0" * len(commit)])
        except GitFailed as error:
            raise Conflict(f"{row} was changed by somebody else at the same moment. Try again.") from error
    return commit, True


def _make_bare(repository: Path, branch: str) -> None:
    """Initialise an empty bare repository without hooks.

    A directory that lies there already belongs to a repository of an earlier database that had the same id. Its content
    must not show up under the new name: it is moved aside, never deleted.
    """
    repository.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if repository.exists():
        aside = Path(tempfile.mkdtemp(prefix=f"{repository.stem}.orphan-", dir=repository.parent))
        shutil.move(repository, aside / repository.name)
    try:
        run_git(repository, ["init", "--quiet", "--bare", "--template=", f"--initial-branch={branch}"])
    except GitFailed as error:
        raise Unavailable(f"The repository cannot be created on disk: {error}", retry_after=60) from error


def _resolve(repository: Path, expression: str) -> str:
    """Return the id that `expression` names, or the empty string."""
    try:
        return _text(run_git(repository, ["rev-parse", "--verify", "--quiet", "--end-of-options", expression]))
    except GitFailed:
        return ""


def _text(output: bytes) -> str:
    return output.decode("ascii").strip()


def find_repository(owner: str, name: str) -> LocalRepository:
    """Return the row of that name, in any spelling. NotFound: there is none."""
    row = LocalRepository.objects.filter(owner__iexact=owner, name__iexact=name).first()
    if row is None:
        raise NotFound(f"There is no repository {owner}/{name}.")
    return row
