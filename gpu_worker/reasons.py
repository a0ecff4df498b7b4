"""Why something failed, in the words that people know, out of errors that libraries have wrapped several times."""

from __future__ import annotations


def reason_of(problem: BaseException) -> str:
    """The innermost reason: "Connection refused", "Permission denied", "Name or service not known".

    What has a name in the system is it: behind that may stand what somebody else was about when it happened.
    """
    cause = problem
    while _name(cause) is None and (inner := cause.__cause__ or cause.__context__) is not None:
        cause = inner
    return _name(cause) or str(cause) or type(problem).__name__


def _name(problem: BaseException) -> str | None:
    text = getattr(problem, "strerror", None) or getattr(problem, "verify_message", None)
    return str(text) if text else None
