"""What keeps one repository's cache mounts and steps from another's in BuildKit: a name that nobody else can guess.

BuildKit knows no owners, only names. A plain digest of the repository's id would do while every program that reads
Dockerfiles keeps what it is told apart from what they say. A name that nobody knows holds whatever such a program does.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import threading
from pathlib import Path

from gpu_worker.atomic import write_private

logger = logging.getLogger(__name__)

FILE_NAME = "build.key"
KEY_BYTES = 32
NAME_DIGITS = 32  # hexadecimal; it is part of a host name too, so below 64


class BuildKey:
    """The key of one worker, in its data directory from the first build on. Any thread."""

    def __init__(self, data_dir: Path | None = None) -> None:
        """*data_dir* None: for this object's life only, and so what is built with it."""
        self._path = None if data_dir is None else data_dir / FILE_NAME
        self._key: bytes | None = None
        self._lock = threading.Lock()

    def name_of(self, repository_id: str) -> str:
        """The same name for the same repository, as long as the data directory is there."""
        with self._lock:
            if self._key is None:
                self._key = self._read() or self._make()
        return hmac.new(self._key, repository_id.encode(), hashlib.sha256).hexdigest()[:NAME_DIGITS]

    def _read(self) -> bytes | None:
        try:
            key = bytes.fromhex(self._path.read_text()) if self._path is not None else b""
        except (OSError, ValueError):
            return None
        return key if len(key) == KEY_BYTES else None

    def _make(self) -> bytes:
        key = secrets.token_bytes(KEY_BYTES)
        if self._path is not None:
            try:
                write_private(self._path, key.hex())
            except OSError as problem:  # of a full disk: builds begin with empty caches after the next start
                logger.warning("build key not kept", extra={"action": "build_key_unwritten", "problem": str(problem)})
        return key
