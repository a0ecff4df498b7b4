"""Look at what a batch job left: hash what the server takes, name the rest, and hold no container's lock for long.

A tar stream cannot pass over a file without reading it, and a file may be all hole: of any size, and made in no time.
While a stream is open the engine keeps other calls about that container waiting, and some about its neighbours too. So
the stream of the whole directory ends where too much of it would only be passed over, or when it has lasted for a
while; what it has not shown yet is asked for file by file, where a file's first bytes say how large it is.
"""

from __future__ import annotations

import hashlib
import logging
import tarfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Protocol

from gpu_worker.errors import EngineError, EngineSilent
from gpu_worker.result_files import (
    KEPT_BYTES,
    KEPT_FILE_BYTES,
    SKIPPED_KEPT,
    Quota,
    ResultFile,
    Results,
    block_of,
    members,
    path_problem,
    path_to_show,
)

logger = logging.getLogger(__name__)

PASSED_OVER_BYTES = 1024**3  # of files that are left out: seconds of reading
STREAM_SECONDS = 15.0  # of the stream of the whole directory; it still ends its file
SINGLE_LOOKS = 20_000  # files that are asked for one by one
# Of a directory. Linux opens paths of 4096 bytes, of which the engine needs some for where it keeps the container, and
# it passes in silence over what it cannot open. Nothing below is a result anyway: its path would be too long.
REACH_BYTES = 3072


class Directory(Protocol):
    """The results directory, as a runtime hands it out."""

    def results(self, path: str = "") -> Generator[bytes, None, None] | None: ...

    def result_paths(self) -> Sequence[str]: ...


class Survey:
    """One look at a results directory, which may be gone on with after a break of the engine."""

    def __init__(self, quota: Quota, *, check: Callable[[], None]) -> None:
        """*check* is called often, and may raise what ends the look."""
        self._quota, self._check = quota, check
        self._begin()

    def _begin(self) -> None:
        self.results = Results()
        self._hashed: dict[str, ResultFile] = {}
        self._seen: set[str] = set()
        self._cut = False

    @property
    def looked_at(self) -> int:
        return len(self.results.files) + self.results.skipped_count + self.results.others

    def look(self, directory: Directory) -> Results:
        """Raises EngineSilent where a stream breaks off, other EngineErrors, and what *check* raises."""
        if not self._cut:
            self._begin()
            stream = directory.results()
            if stream is None:
                return self.results
            with closing(stream):
                self._cut = not self._whole(stream)
        if self._cut:
            self._one_by_one(directory)
        return self.results

    def _whole(self, stream: Generator[bytes, None, None]) -> bool:
        """Read the directory's stream; whether nothing is left to look at."""
        passed_over, until = 0, time.monotonic() + STREAM_SECONDS
        for tar, member in members(stream):
            self._check()
            path = member.name.partition("/")[2]
            if member.isdir():
                self._note_depth(path)
                continue
            self._seen.add(path)
            if self._nothing_more():
                return True
            if not self._take(tar, member, path):
                passed_over += member.size
            if passed_over > PASSED_OVER_BYTES or time.monotonic() > until:
                return False
        return True

    def _note_depth(self, path: str) -> None:
        """Name the uppermost directory of those from which something may be missing in the stream."""
        parent = path.rpartition("/")[0]
        if _bytes_in(path) > REACH_BYTES >= _bytes_in(parent):
            self.results.skip(path_to_show(path), None, "unreadable")

    def _one_by_one(self, directory: Directory) -> None:
        try:
            listed = directory.result_paths()
        except EngineSilent:
            raise
        except EngineError as problem:  # an engine lists nothing at all where one path is too long for it
            logger.warning("results not listed", extra={"action": "results_unlisted", "problem": str(problem)[:200]})
            self.results.whole = False
            return
        # An engine lists nothing of a volume, and nothing that the image brought: then files may be missing here too.
        complete = {path for path in self._seen if not path_problem(path)} <= set(listed)
        left = [path for path in listed if path not in self._seen]
        for looks, path in enumerate(left):
            self._check()
            if looks >= SINGLE_LOOKS:
                self.results.whole = False
            if not self.results.whole or self._nothing_more():
                return
            self._single(directory, path)
            self._seen.add(path)
        self.results.whole = complete

    def _single(self, directory: Directory, path: str) -> None:
        stream = directory.results(path)
        if stream is None:
            self.results.skip(path_to_show(path), None, "unreadable")
            return
        with closing(stream):
            for tar, member in members(stream):
                if not member.isdir():
                    self._take(tar, member, path)
                return

    def _nothing_more(self) -> bool:
        """Whether nothing more can be kept, and nobody would read more of what was not."""
        if len(self.results.files) >= self._quota.files and len(self.results.skipped) >= SKIPPED_KEPT:
            self.results.whole = False
        return not self.results.whole

    def _take(self, tar: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> bool:
        """Keep a file or say why not; whether it was read. The stream stands before its content."""
        results = self.results
        if not member.isreg() and not member.islnk():
            results.others += 1
            return False
        known = self._hashed.get(member.linkname.partition("/")[2]) if member.islnk() else None
        size = known.size if known else member.size
        reason = self._reason(path, size)
        if member.islnk() and known is None and not reason:
            reason = "unreadable"  # another name of a file that was left out
        if reason:
            results.skip(path_to_show(path), size, reason)
            return False
        self._hashed[path] = replace(known, path=path) if known else self._read(tar, member, path)
        results.keep(self._hashed[path])
        return True

    def _reason(self, path: str, size: int) -> str:
        """Why a file is left out; empty for one that is kept."""
        if path_problem(path):
            return "bad_name"
        if size > self._quota.file_bytes:
            return "file_too_large"
        if self.results.size + size > self._quota.job_bytes:
            return "job_quota"
        return "too_many_files" if len(self.results.files) >= self._quota.files else ""

    def _read(self, tar: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> ResultFile:
        in_memory = self.results.in_memory + member.size <= KEPT_BYTES and member.size <= KEPT_FILE_BYTES
        content, digest = tar.extractfile(member), hashlib.sha256()
        assert content is not None, "a regular file has content"
        small = bytearray() if in_memory else None
        while block := block_of(content):
            self._check()
            digest.update(block)
            if small is not None:
                small += block
        return ResultFile(path, member.size, digest.hexdigest(), None if small is None else bytes(small))


def _bytes_in(path: str) -> int:
    return len(path.encode("utf-8", "surrogateescape"))
