"""What the product asks of a forge, and the plain values it gets back.

A forge keeps repositories, says who may do what with them, and hands out their content at a commit. It knows nothing of
Spaces or jobs. Whoever asks is a `Viewer`; what the viewer may not read does not exist for him (`NotFound`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import Literal, Protocol

from spaces.models import Visibility


class Permission(IntEnum):
    """What somebody may do with a repository; a higher one includes the lower ones."""

    NONE = 0
    READ = 1
    WRITE = 2
    ADMIN = 3


class User(Protocol):
    """The little that a forge needs to know of a portal account."""

    @property
    def pk(self) -> int | None: ...
    @property
    def is_authenticated(self) -> bool: ...


@dataclass(frozen=True)
class Viewer:
    """Somebody as the forge knows him. `operator`: may do everything; `user_id` None: nobody is signed in."""

    user_id: int | None = None
    username: str = ""
    operator: bool = False

    @property
    def signed_in(self) -> bool:
        return self.user_id is not None


ANONYMOUS = Viewer()
# The product itself: for upkeep and for what was already decided (a job's source). Never on behalf of a visitor.
SYSTEM = Viewer(operator=True)


@dataclass(frozen=True)
class Repository:
    """A repository as one viewer sees it."""

    id: str  # the forge's own, survives renames and transfers
    owner: str
    name: str
    visibility: Visibility
    topics: tuple[str, ...]
    default_branch: str
    permission: Permission

    @property
    def full_name(self) -> str:
        return f"{self.owner}/{self.name}"


@dataclass(frozen=True)
class Commit:
    sha: str  # full
    committed_at: datetime
    author: str
    subject: str


@dataclass(frozen=True)
class TreeEntry:
    name: str
    path: str  # from the root of the repository, without a leading slash
    kind: Literal["file", "directory", "symlink", "submodule"]
    size: int | None = None  # bytes; None where there is no such thing
    executable: bool = False


@dataclass(frozen=True)
class GitRequest:
    """One exchange of git's smart HTTP protocol, read side only.

    `advertise` is `GET info/refs?service=git-upload-pack`, `upload-pack` is the POST of that name. `protocol` is the
    checked value of the header Git-Protocol. `body` yields the decoded request.
    """

    operation: Literal["advertise", "upload-pack"]
    protocol: str
    body: AsyncIterator[bytes]


class Forge(ABC):
    """A place that keeps repositories. Calls block, but for `serve_…`, and raise only `spaces.forge.errors`."""

    @abstractmethod
    def identity(self, user: User) -> Viewer:
        """Return who this portal user is on the forge; ANONYMOUS for one who is not signed in or not active."""

    @abstractmethod
    def get_repo(self, owner: str, name: str, *, viewer: Viewer) -> Repository:
        """Return the repository of that name, in any spelling of its case. NotFound: missing or not yours."""

    @abstractmethod
    def get_repo_by_id(self, repository_id: str, *, viewer: Viewer) -> Repository:
        """Return the repository with that id, whatever it is called now. NotFound: missing or not yours."""

    @abstractmethod
    def search(self, topic: str, *, viewer: Viewer) -> list[Repository]:
        """Return all repositories with that topic that the viewer may read, by owner and name."""

    @abstractmethod
    def head(self, repo: Repository) -> Commit:
        """Return the newest commit of the default branch. EmptyRepository: there is none."""

    @abstractmethod
    def get_commit(self, repo: Repository, revision: str) -> Commit:
        """Return the commit with that full id if a branch or tag contains it, else NotFound.

        Git itself serves any object that is still in the store, reachable or not: this is the check against that.
        """

    @abstractmethod
    def list_tree(self, repo: Repository, revision: str, path: str = "") -> list[TreeEntry]:
        """Return one directory at a commit, directories first. TooLarge: more entries than anybody would read."""

    @abstractmethod
    def read_file(self, repo: Repository, revision: str, path: str, *, limit: int) -> bytes:
        """Return a file at a commit. TooLarge: it has more than `limit` bytes. A symlink's content is its target."""

    @abstractmethod
    def serve_git(self, repo: Repository, request: GitRequest) -> AsyncIterator[bytes]:
        """Yield git's answer as it comes, without holding a database connection; closing the iterator ends the work."""

    @abstractmethod
    def writers_may_read(self, repo: Repository, other: Repository) -> bool:
        """Whether everybody who may push to `repo` may read `other`, so that a build of one may take in the other."""

    @abstractmethod
    def lfs_sizes(self, repo: Repository, oids: Sequence[str]) -> dict[str, int]:
        """Return those of the Git LFS objects that the repository has, by id (SHA-256, hex), with their bytes."""

    @abstractmethod
    def serve_lfs(self, repo: Repository, oid: str) -> AsyncIterator[bytes]:
        """Yield a Git LFS object as it comes, on the terms of `serve_git`. NotFound before the first byte."""
