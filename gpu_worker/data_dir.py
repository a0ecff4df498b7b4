"""The data directory belongs to one worker process at a time: two would fight over one journal."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import IO

from gpu_worker.atomic import give_to_owner
from gpu_worker.errors import ConfigError

LOCK_NAME = "worker.lock"
# Who may hold it, written into the file for whoever cannot have it.
RUN, LEAVE, ENROLL = "run", "leave", "enroll"
_LONGEST = 16  # characters of any of them
WHICH = "Say where it is: --data-dir, WORKER_DATA_DIR, or the settings file of the service."


class DataDirLock:
    """Held while a worker runs, or a command changes what it owns. Raises ConfigError where it cannot be had."""

    def __init__(
        self, data_dir: Path, holder: str, *, taken: str = "Another worker is running with the data directory {}."
    ) -> None:
        """*holder*: RUN, LEAVE or ENROLL. *taken*: what to say where a worker runs; ``{}`` stands for the path."""
        self._data_dir, self._holder, self._taken = data_dir, holder, taken
        self._file: IO[str] | None = None

    def __enter__(self) -> None:
        path = self._data_dir / LOCK_NAME
        try:
            self._data_dir.mkdir(parents=True, exist_ok=True)
            self._file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+")
            give_to_owner(self._file.fileno(), self._data_dir)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(OSError):  # of a full disk; nobody is kept from working by that
                self._file.truncate(0)
                os.pwrite(self._file.fileno(), self._holder.encode(), 0)
        except BlockingIOError:
            holder = _holder(self._file)
            self.__exit__()
            raise ConfigError(self._sentence(holder)) from None
        except OSError as problem:
            self.__exit__()
            raise ConfigError(f"The data directory {self._data_dir} cannot be used: {problem.strerror}.") from problem

    def _sentence(self, holder: str) -> str:
        if holder == RUN:
            return self._taken.format(self._data_dir)
        return f"`{holder}` is at work on the data directory {self._data_dir}: wait until it has ended."

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


def in_use(data_dir: Path) -> bool:
    """Whether a worker runs with this directory. Asks and leaves no trace. Raises ConfigError where it may not look."""
    try:
        with open(data_dir / LOCK_NAME) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return _holder(file) == RUN
    except FileNotFoundError:
        return False
    except OSError as problem:
        raise ConfigError(f"The data directory {data_dir} cannot be read: {problem.strerror}.") from problem
    return False


def _holder(file: IO[str] | None) -> str:
    """Who holds it. A worker of a version that wrote nothing does, where nothing is there that we know."""
    text = os.pread(file.fileno(), _LONGEST, 0).decode("utf-8", "replace") if file is not None else RUN
    return text if text in (LEAVE, ENROLL) else RUN
