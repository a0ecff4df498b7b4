"""Errors of the jobs room.

    JobError
    ├── IllegalTransition   409 illegal_transition
    ├── StaleLease          409 lease_stale
    ├── EventGap            409 event_gap (knows the expected seq)
    ├── SupersededSession   409 session_superseded
    └── UnknownJob          404
        └── UnknownLease    404

The docstring is the default message: a sentence that may be shown to a person.
"""

from __future__ import annotations


class JobError(Exception):
    """Something is wrong with this job."""

    code = "job_error"

    def __init__(self, message: str = "") -> None:
        super().__init__(message or type(self).__doc__ or "")


class IllegalTransition(JobError):
    """The job cannot do that in its present state."""

    code = "illegal_transition"


class StaleLease(JobError):
    """This lease is no longer yours: it was released, or the job belongs to another attempt."""

    code = "lease_stale"


class EventGap(JobError):
    """An earlier event is missing."""

    code = "event_gap"

    def __init__(self, expected_seq: int) -> None:
        super().__init__(f"The next event of this lease must have seq {expected_seq}.")
        self.expected_seq = expected_seq


class SupersededSession(JobError):
    """This worker registered again since: another process holds its credential now."""

    code = "session_superseded"


class UnknownJob(JobError):
    """There is no such job."""

    code = "not_found"


class UnknownLease(UnknownJob):
    """There is no such lease: it may be of a newer copy of this database, so nothing of it is to be removed."""
