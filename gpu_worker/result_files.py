"""What a batch job left in its results directory, as it stands in a tar stream, and by which names the server takes it.

Only regular files count. A tar stream follows no link, so nothing outside the directory is ever in it. A file's digest
has to be known before it is sent, so each is read twice; small ones are kept in memory instead, and cost one look.
"""

from __future__ import annotations

import tarfile
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, cast

from gpu_worker.errors import EngineError, EngineSilent

BLOCK_BYTES = 1024 * 1024
KEPT_FILE_BYTES = 256 * 1024  # of one file
KEPT_BYTES = 8 * 1024 * 1024  # of all files of a job
SKIPPED_KEPT = 100  # as many as the server remembers

# The server's rules for paths; what breaks them could not be delivered.
MAX_PATH_BYTES, MAX_NAME_BYTES = 1024, 255
_FORBIDDEN_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})
_JOINERS = "\u200c\u200d"  # of letters, and within many an emoji


@dataclass(frozen=True)
class Quota:
    """How much the server takes of one job."""

    file_bytes: int
    job_bytes: int
    files: int


@dataclass(frozen=True)
class ResultFile:
    path: str
    size: int
    sha256: str
    content: bytes | None = None
    """Of a small one; None: read it again."""


@dataclass(frozen=True)
class Skipped:
    path: str
    size: int | None
    reason: str
    """file_too_large, job_quota, too_many_files, bad_name, unreadable or stopped."""


@dataclass
class Results:
    files: list[ResultFile] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    skipped_count: int = 0
    others: int = 0
    """Links, devices and the like, which are no results."""
    whole: bool = True
    """Whether everything there was looked at."""
    size: int = 0
    """Bytes of all files together."""
    in_memory: int = 0
    """Bytes of those that need not be read again."""

    def keep(self, file: ResultFile) -> None:
        self.files.append(file)
        self.size += file.size
        self.in_memory += len(file.content or b"")

    def drop(self, file: ResultFile, reason: str) -> None:
        """Leave out a file that was to be kept."""
        self.files = [one for one in self.files if one is not file]
        self.size -= file.size
        self.skip(file.path, file.size, reason)

    def skip(self, path: str, size: int | None, reason: str) -> None:
        self.skipped_count += 1
        if len(self.skipped) < SKIPPED_KEPT:
            self.skipped.append(Skipped(path, size, reason))


def only_file(stream: Iterator[bytes]) -> Iterator[bytes]:
    """The content of the one file in a tar *stream*, piece by piece. Raises EngineSilent."""
    for tar, member in members(stream):
        content = tar.extractfile(member) if member.isreg() else None
        if content is not None:
            while block := block_of(content):
                yield block
            return
    raise EngineError("it is no file any more")


def members(stream: Iterator[bytes]) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    """The members of a tar stream, one at a time: the next forgets the one before."""
    try:
        with tarfile.open(fileobj=cast("IO[bytes]", _File(stream)), mode="r|", bufsize=BLOCK_BYTES) as tar:
            while (member := tar.next()) is not None:
                yield tar, member
                tar.members.clear()  # type: ignore[attr-defined]  # it would keep all that it ever saw
    except tarfile.TarError as problem:
        raise EngineSilent(f"the results could not be read: {problem}") from problem


def path_problem(path: str) -> bool:
    """Whether the server would refuse the path."""
    names = path.split("/")
    encoded = path.encode("utf-8", "surrogatepass")
    return (
        "\\" in path
        or len(encoded) > MAX_PATH_BYTES
        or any(unicodedata.category(character) in _FORBIDDEN_CATEGORIES for character in path)
        or any(name in ("", ".", "..") or len(name.encode("utf-8", "replace")) > MAX_NAME_BYTES for name in names)
    )


def deceives(path: str) -> bool:
    """Whether people may take the path for another one: it has characters that turn text around or show nothing."""
    return any(unicodedata.category(one) == "Cf" and one not in _JOINERS for one in path)


def path_to_show(path: str) -> str:
    """The path in a form that every reader can be shown."""
    if not path_problem(path):
        return path
    shown = "".join(
        "\N{REPLACEMENT CHARACTER}" if unicodedata.category(one) in _FORBIDDEN_CATEGORIES or one == "\\" else one
        for one in path
    )
    return "/".join(name[:60] for name in shown.split("/") if name not in ("", ".", ".."))[:200].strip("/") or "?"


def block_of(content: IO[bytes]) -> bytes:
    """The next piece of a member's content; empty at its end. Raises EngineSilent."""
    try:
        return content.read(BLOCK_BYTES)
    except tarfile.TarError as problem:
        raise EngineSilent(f"the results could not be read: {problem}") from problem


class _File:
    """A stream of pieces as tarfile reads it."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest = pieces, b""

    def read(self, size: int) -> bytes:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._rest = piece
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken
