"""Why something failed, in the words that people know, out of errors that libraries have wrapped several times."""

from __future__ import annotations


def reason_of(problem: BaseException) -> str:
    """The innermost reason: "Connection refused", "Permission denied", "Name or service not known"."""
    cause = problem
    while (inner := cause.__cause__ or cause.__context__) is not None:
        cause = inner
    text = getattr(cause, "strerror", None) or getattr(cause, "verify_message", None) or str(cause)
    return str(text) or type(problem).__name__
