"""Errors of a forge: the same set, whatever stands behind the interface.

    ForgeError
    ├── NotFound          missing, or not yours: nobody can tell which
    ├── EmptyRepository   it exists and has no commit on its default branch
    ├── Unauthenticated   the forge wants to know who asks
    ├── Forbidden         you may see it, and may not do that
    ├── Conflict          it exists already, or changed under your hands
    ├── TooLarge          the answer is above the bound that the caller set
    └── Unavailable       the forge does not answer now (knows when to ask again)

The docstring is the default message: a sentence that may be shown to a person.
"""

from __future__ import annotations


class ForgeError(Exception):
    """The forge could not do that."""

    code = "forge_error"

    def __init__(self, message: str = "") -> None:
        super().__init__(message or type(self).__doc__ or "")


class NotFound(ForgeError):
    """There is no such repository, commit or file, or it is not yours to see."""

    code = "not_found"


class EmptyRepository(ForgeError):
    """The repository has no commit yet."""

    code = "empty_repository"


class Unauthenticated(ForgeError):
    """Sign in first."""

    code = "unauthenticated"


class Forbidden(ForgeError):
    """You may not do that with this repository."""

    code = "forbidden"


class Conflict(ForgeError):
    """The repository exists already, or was changed by somebody else at the same moment."""

    code = "conflict"


class TooLarge(ForgeError):
    """This is larger than what is read here."""

    code = "too_large"


class Unavailable(ForgeError):
    """The forge does not answer at the moment."""

    code = "forge_unavailable"

    def __init__(self, message: str = "", *, retry_after: float = 5) -> None:
        super().__init__(message)
        self.retry_after = retry_after  # seconds
