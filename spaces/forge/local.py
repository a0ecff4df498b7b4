"""LocalForge: bare git repositories on disk, their owners, visibility and topics in the database.

The stand-in for a Forgejo on machines that have none. This module reads; `local_writes.py` creates and commits.
A repository lies under its id, never under its name: names come from people and change.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db.models import CharField, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.functions import Lower
from django.db.models.lookups import Exact

from spaces.forge import local_lfs
from spaces.forge.base import (
    ANONYMOUS,
    Commit,
    Forge,
    GitRequest,
    Permission,
    Repository,
    TreeEntry,
    User,
    Viewer,
)
from spaces.forge.errors import EmptyRepository, NotFound, TooLarge, Unavailable
from spaces.forge.git_commands import GitFailed, run_git, stream_git
from spaces.models import LocalCollaborator, LocalRepository, Visibility

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}\Z")
FULL_ID = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})\Z")
TREE_LIMIT = 5_000  # entries of one directory; nobody reads more, and each is a line of a page
_HEADER_LIMIT = 128  # bytes: an id, a type and a size
_COMMIT_FORMAT = "--format=%H%x00%cI%x00%an%x00%s"
_WRITING = (LocalCollaborator.Permission.WRITE, LocalCollaborator.Permission.ADMIN)
_KINDS = {"040000": "directory", "120000": "symlink", "160000": "submodule"}


class LocalForge(Forge):
    """Repositories under `settings.OPENFACE_REPOSITORIES_DIR`."""

    def identity(self, user: User) -> Viewer:
        if not user.is_authenticated or not getattr(user, "is_active", False) or user.pk is None:
            return ANONYMOUS
        operator = bool(getattr(user, "is_staff", False) or getattr(user, "is_superuser", False))
        return Viewer(user_id=user.pk, username=getattr(user, get_user_model().USERNAME_FIELD), operator=operator)

    def get_repo(self, owner: str, name: str, *, viewer: Viewer) -> Repository:
        if not is_name(owner) or not is_name(name):
            raise NotFound
        return self._one(_rows(viewer).filter(_is("owner", owner), _is("name", name)), viewer)

    def get_repo_by_id(self, repository_id: str, *, viewer: Viewer) -> Repository:
        if not repository_id.isascii() or not repository_id.isdigit() or len(repository_id) > 18:
            raise NotFound
        return self._one(_rows(viewer).filter(pk=int(repository_id)), viewer)

    def search(self, topic: str, *, viewer: Viewer) -> list[Repository]:
        rows = _rows(viewer).filter(topics__contains=[topic.lower()]).order_by(Lower("owner"), Lower("name"))
        if not viewer.operator:
            readable = Q(visibility=Visibility.PUBLIC) | Q(viewer_permission__isnull=False)
            if viewer.signed_in:
                readable |= Q(visibility=Visibility.INTERNAL) | Q(_is("owner", viewer.username))
            rows = rows.filter(readable)
        return [_seen_by(viewer, row) for row in rows]

    def _one(self, rows: QuerySet[LocalRepository], viewer: Viewer) -> Repository:
        row = rows.first()
        if row is None:
            raise NotFound
        repo = _seen_by(viewer, row)
        if repo.permission < Permission.READ:
            raise NotFound
        return repo

    def head(self, repo: Repository) -> Commit:
        directory = repository_directory(repo.id)
        try:
            # Inside refs/heads/ the branch's name cannot be an option, whatever it is.
            output = run_git(
                directory,
                ["log", "-1", _COMMIT_FORMAT, "--end-of-options", f"refs/heads/{repo.default_branch}", "--"],
            )
        except GitFailed as error:
            if not directory.is_dir():
                raise _lost(repo) from error
            raise EmptyRepository(f"{repo.full_name} has no commit on its branch {repo.default_branch} yet.") from error
        return _parse_commit(output)

    def get_commit(self, repo: Repository, revision: str) -> Commit:
        if not FULL_ID.match(revision):
            raise NotFound(f"{revision[:64]!r} is not a full commit id.")
        gone = NotFound(f"The commit {revision[:12]} is in no branch or tag of {repo.full_name}.")
        directory = repository_directory(repo.id)
        try:
            refs = ["for-each-ref", "--count=1", "--format=%(refname)", f"--contains={revision}"]
            if not run_git(directory, [*refs, "refs/heads", "refs/tags"]).strip():
                raise gone
            return _parse_commit(run_git(directory, ["log", "-1", _COMMIT_FORMAT, revision, "--"]))
        except GitFailed as error:
            if not directory.is_dir():
                raise _lost(repo) from error
            raise gone from error

    def list_tree(self, repo: Repository, revision: str, path: str = "") -> list[TreeEntry]:
        path = _checked_path(path, empty=True)
        _check_id(revision)
        try:
            output = run_git(repository_directory(repo.id), ["ls-tree", "-z", "--long", f"{revision}:{path}"])
        except GitFailed as error:
            raise NotFound(f"There is no directory {path or '/'} in {repo.full_name} at {revision[:7]}.") from error
        lines = output.split(b"\0")[:-1]
        if len(lines) > TREE_LIMIT:
            raise TooLarge(f"The directory {path or '/'} has more than {TREE_LIMIT} entries.")
        entries = [_parse_entry(line, path) for line in lines]
        return sorted(entries, key=lambda entry: (entry.kind != "directory", entry.name.lower()))

    def read_file(self, repo: Repository, revision: str, path: str, *, limit: int) -> bytes:
        path = _checked_path(path)
        _check_id(revision)
        missing = NotFound(f"There is no file {path} in {repo.full_name} at {revision[:7]}.")
        directory = repository_directory(repo.id)
        try:
            # On stdin, where nothing can be an option. One header line, the content, a line feed.
            output = run_git(
                directory, ["cat-file", "--batch"], stdin=f"{revision}:{path}\n".encode(), limit=limit + _HEADER_LIMIT
            )
        except GitFailed as error:
            if not directory.is_dir():
                raise _lost(repo) from error
            raise missing from error
        except TooLarge as error:
            raise TooLarge(f"{path} has more than {limit} bytes.") from error
        header, _, content = output.partition(b"\n")
        match header.split():
            case [_, b"blob", size] if len(content) == int(size) + 1:
                if int(size) > limit:
                    raise TooLarge(f"{path} has more than {limit} bytes.")
                return content[:-1]
        raise missing

    async def serve_git(self, repo: Repository, request: GitRequest) -> AsyncIterator[bytes]:
        directory = repository_directory(repo.id)
        if not directory.is_dir():
            raise _lost(repo)
        advertise = ["--http-backend-info-refs"] if request.operation == "advertise" else []
        extra = {"GIT_PROTOCOL": request.protocol} if request.protocol else {}
        # Protocol 0 refuses a bare commit id without this; protocol 2 never asks.
        options = ["-c", "uploadpack.allowReachableSHA1InWant=true", "-c", "uploadpack.allowFilter=false"]
        output = stream_git(
            directory,
            [*options, "upload-pack", "--stateless-rpc", "--strict", *advertise, str(directory)],
            request.body,
            extra=extra,
        )
        if request.operation == "advertise":
            yield b"001e# service=git-upload-pack\n0000"
        said_why = False
        try:
            async for chunk in output:
                said_why = chunk[4:8] == b"ERR "
                yield chunk
        except GitFailed:
            # Git told the client in its own protocol what is wrong: that is a whole answer.
            if not said_why:
                raise
        finally:
            await output.aclose()

    def writers_may_read(self, repo: Repository, other: Repository) -> bool:
        if repo.id == other.id or other.visibility != Visibility.PRIVATE:
            return True  # who may push is signed in
        owners = set(_accounts(repo.owner))
        if not owners and repo.owner.lower() != other.owner.lower():
            return False  # only operators can push there, and what they import is not their own word
        given = LocalCollaborator.objects.values_list("user_id", flat=True)
        writers = given.filter(repository=int(repo.id), permission__in=_WRITING)
        readers = given.filter(repository=int(other.id))
        return {*owners, *writers} <= {*_accounts(other.owner), *readers}

    def lfs_sizes(self, repo: Repository, oids: Sequence[str]) -> dict[str, int]:
        return local_lfs.sizes(repository_directory(repo.id), oids)

    def serve_lfs(self, repo: Repository, oid: str) -> AsyncIterator[bytes]:
        return local_lfs.stream(repository_directory(repo.id), oid)


def is_name(text: str) -> bool:
    """Whether an owner or a repository can be called that: it stands in paths, and must not be a path of its own."""
    return bool(_NAME.match(text)) and ".." not in text and not text.lower().endswith((".", ".git"))


def repository_directory(repository_id: str | int) -> Path:
    """Return where the repository lies."""
    return Path(settings.OPENFACE_REPOSITORIES_DIR).absolute() / f"{int(repository_id)}.git"


def _rows(viewer: Viewer) -> QuerySet[LocalRepository]:
    """All repositories, with what the viewer was given on each, in one query."""
    rows = LocalRepository.objects.all()
    if viewer.user_id is None:
        return rows.annotate(viewer_permission=Value(None, output_field=CharField(null=True)))
    given = LocalCollaborator.objects.filter(repository=OuterRef("pk"), user_id=viewer.user_id)
    return rows.annotate(viewer_permission=Subquery(given.values("permission")[:1]))


def _accounts(owner: str) -> QuerySet[Any, int]:
    """The account behind an owner's name; none for an organisation that is only a name."""
    accounts = get_user_model().objects.filter(_is(get_user_model().USERNAME_FIELD, owner))
    return accounts.values_list("pk", flat=True)


def _is(field: str, text: str) -> Exact:
    """Equal but for case, as the unique index compares (`iexact` would compare upper cases, past the index)."""
    return Exact(Lower(field), Value(text.lower()))


def _seen_by(viewer: Viewer, row: LocalRepository) -> Repository:
    """Return the row with what the viewer may do: the most that any rule gives him."""
    permission = Permission.NONE
    if row.visibility == Visibility.PUBLIC or (row.visibility == Visibility.INTERNAL and viewer.signed_in):
        permission = Permission.READ
    given = getattr(row, "viewer_permission", None)
    if given:
        permission = max(permission, Permission[given.upper()])
    if viewer.operator or (viewer.signed_in and row.owner.lower() == viewer.username.lower()):
        permission = Permission.ADMIN
    return Repository(
        id=str(row.pk),
        owner=row.owner,
        name=row.name,
        visibility=Visibility(row.visibility),
        topics=tuple(row.topics),
        default_branch=row.default_branch,
        permission=permission,
    )


def _check_id(revision: str) -> None:
    if not FULL_ID.match(revision):
        raise NotFound(f"{revision[:64]!r} is not a full commit id.")


def _checked_path(path: str, *, empty: bool = False) -> str:
    """Return the path as git spells it. NotFound for one that no tree can contain."""
    bare = path.strip("/")
    if not bare and empty:
        return ""
    parts = bare.split("/")
    if any(part in ("", ".", "..") for part in parts) or any(c in bare for c in "\0\n") or len(bare) > 4096:
        raise NotFound("There is no such file.")
    return str(PurePosixPath(*parts))


def _parse_commit(output: bytes) -> Commit:
    sha, committed_at, author, subject = output.decode("utf-8", "replace").rstrip("\n").split("\0", 3)
    return Commit(sha=sha, committed_at=datetime.fromisoformat(committed_at), author=author, subject=subject)


def _parse_entry(line: bytes, directory: str) -> TreeEntry:
    facts, _, raw_name = line.partition(b"\t")
    mode, _type, _object_id, size = facts.decode("ascii").split()
    name = raw_name.decode("utf-8", "replace")
    return TreeEntry(
        name=name,
        path=f"{directory}/{name}" if directory else name,
        kind=_KINDS.get(mode, "file"),  # type: ignore[arg-type]  # the table holds only the literals
        size=int(size) if size.isdigit() else None,
        executable=mode == "100755",
    )


def _lost(repo: Repository) -> Unavailable:
    return Unavailable(f"The files of {repo.full_name} are missing on the server.", retry_after=60)
