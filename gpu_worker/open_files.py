"""How many files and sockets this process may have open, and what it means when they are used up: that we cannot look.

A shell begins with 1,024, and a visitor of an app takes two of them. Who cannot look has seen nothing: an app whose
process or file could not be opened for want of files has not ended.
"""

from __future__ import annotations

import errno
import resource
from contextlib import suppress

from gpu_worker.errors import EngineSilent

MOST = 65536  # as the systemd unit has it; apps of the process executor inherit it
_USED_UP = frozenset({errno.EMFILE, errno.ENFILE})


def allowed() -> int:
    """How many at once."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def allow_many() -> None:
    """From now on MOST, where the system lets this process have so many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(MOST, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def used_up(problem: BaseException) -> bool:
    """Whether it says that this process, or the machine, has no file left to open."""
    return isinstance(problem, OSError) and problem.errno in _USED_UP


class looking:  # a context manager reads like a keyword here
    """Turns the want of files into EngineSilent: the answer is not known now."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: object) -> None:
        if problem is not None and used_up(problem):
            raise EngineSilent(f"Nothing can be looked at now: {problem}") from problem
