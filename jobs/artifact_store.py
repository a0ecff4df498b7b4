"""Results of batch jobs on disk: written beside their place, made durable, then renamed into it.

A file is named by its row's id, never by what a worker called it. Nothing here knows rows: `artifacts.py` does. What
is on disk without a row (we died between the rename and the commit, or after a row was deleted) is swept after a day.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from django.conf import settings

logger = logging.getLogger(__name__)

INCOMING = "incoming"
ORPHAN_SECONDS = 24 * 3600.0  # longer than any upload takes
MIB = 1024 * 1024


def directory() -> Path:
    """Where results are kept. It exists as soon as something was stored."""
    return Path(settings.OPENFACE_ARTIFACTS_DIR)


def has_room(size: int) -> bool:
    """Whether `size` bytes more leave as much of the disk free as the operator wants to keep."""
    place = _made(directory())
    floor: int = settings.OPENFACE_ARTIFACT_DISK_FLOOR_MIB * MIB
    return shutil.disk_usage(place).free - size >= floor


def path_of(artifact_id: uuid.UUID) -> Path:
    """Where the file of a row is."""
    return directory() / artifact_id.hex[:2] / artifact_id.hex


class Incoming:
    """A file that is being received. Its methods block; `discard` it unless it was placed."""

    def __init__(self) -> None:
        self._path = _made(directory() / INCOMING) / f"{uuid.uuid4().hex}.part"
        # Results of private repositories are nobody else's on this machine.
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._file: BinaryIO = os.fdopen(handle, "wb")
        self._sha256 = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> None:
        """Append. Raises OSError, also when the disk is full."""
        self._file.write(data)
        self._sha256.update(data)
        self.size += len(data)

    def finish(self) -> str:
        """Make what was written durable; return its SHA-256 as hex. A worker deletes its copy after our answer."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return self._sha256.hexdigest()

    def place(self, artifact_id: uuid.UUID) -> None:
        """Rename it to where the row's file belongs."""
        target = path_of(artifact_id)
        _made(target.parent)
        self._path.rename(target)
        _sync_directory(target.parent)

    def discard(self) -> None:
        """Remove what is left of it; nothing once it was placed."""
        self._file.close()
        self._path.unlink(missing_ok=True)


def remove(artifact_id: uuid.UUID) -> None:
    """Remove a file whose row is gone. Idempotent; a file that resists is left to the sweep."""
    try:
        path_of(artifact_id).unlink(missing_ok=True)
    except OSError as problem:
        logger.warning("result not removed: %s", problem, extra={"action": "artifact_left", "artifact": artifact_id})


def old_files(*, older_than_seconds: float = ORPHAN_SECONDS) -> Iterator[uuid.UUID]:
    """Yield the ids of files that are old enough to have a row if they ever get one."""
    before = time.time() - older_than_seconds
    for file in _files(sorted(directory().glob("[0-9a-f][0-9a-f]"))):
        if file.stat().st_mtime < before:
            try:
                yield uuid.UUID(file.name)
            except ValueError:
                continue  # not ours


def sweep_incoming(*, older_than_seconds: float = ORPHAN_SECONDS) -> int:
    """Remove uploads that nobody has written to for so long; return how many."""
    before = time.time() - older_than_seconds
    dead = [file for file in _files([directory() / INCOMING]) if file.stat().st_mtime < before]
    for file in dead:
        file.unlink(missing_ok=True)
    return len(dead)


def _made(place: Path) -> Path:
    """The directory, made if need be, open to this process's user alone."""
    if not place.is_dir():
        if place != directory():
            _made(directory())
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    return place


def _files(places: Iterable[Path]) -> Iterator[Path]:
    for place in places:
        if place.is_dir():
            yield from place.iterdir()


def _sync_directory(place: Path) -> None:
    handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
