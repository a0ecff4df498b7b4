"""The data directory belongs to one worker process at a time: two would fight over one journal."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO

from gpu_worker.atomic import give_to_owner
from gpu_worker.errors import ConfigError

LOCK_NAME = "worker.lock"
WHICH = "Say where it is: --data-dir, WORKER_DATA_DIR, or the settings file of the service."


class DataDirLock:
    """Held while a worker runs, or a command changes what it owns. Raises ConfigError where it cannot be had."""

    def __init__(self, data_dir: Path, *, taken: str = "Another worker is running with the data directory {}.") -> None:
        """*taken* is the sentence for a directory that is in use; ``{}`` stands for its path."""
        self._data_dir, self._taken = data_dir, taken
        self._file: IO[str] | None = None

    def __enter__(self) -> None:
        path = self._data_dir / LOCK_NAME
        try:
            self._data_dir.mkdir(parents=True, exist_ok=True)
            self._file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+")
            give_to_owner(self._file.fileno(), self._data_dir)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.__exit__()
            raise ConfigError(self._taken.format(self._data_dir)) from None
        except OSError as problem:
            self.__exit__()
            raise ConfigError(f"The data directory {self._data_dir} cannot be used: {problem.strerror}.") from problem

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


def in_use(data_dir: Path) -> bool:
    """Whether a worker runs with this directory. Asks and leaves no trace. Raises ConfigError where it may not look."""
    try:
        with open(data_dir / LOCK_NAME) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    except OSError as problem:
        raise ConfigError(f"The data directory {data_dir} cannot be read: {problem.strerror}.") from problem
    return False
