"""Errors of the jobs room.

    JobError
    ├── IllegalTransition   409 illegal_transition
    ├── StaleLease          409 lease_stale
    ├── EventGap            409 event_gap (knows the expected seq)
    ├── SupersededSession   409 session_superseded
    ├── UnknownJob          404
    │   └── UnknownLease    404
    └── ArtifactRefused     a result of a batch job is not taken
        ├── NotYourArtifacts 401 artifacts_denied
        ├── BadArtifactPath 422 invalid
        ├── DigestMismatch  422 digest_mismatch
        ├── ArtifactTooLarge 413 too_large
        │   └── QuotaExceeded 413 quota_exceeded
        └── StorageFull     503 storage_full

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


class ArtifactRefused(JobError):
    """This result is not taken."""

    code = "artifact_refused"


class NotYourArtifacts(ArtifactRefused):
    """This needs the runtime token of the batch job's own lease."""

    code = "artifacts_denied"


class BadArtifactPath(ArtifactRefused):
    """A result cannot have this path."""

    code = "invalid"


class DigestMismatch(ArtifactRefused):
    """What arrived is not what Content-Digest names: nothing was stored."""

    code = "digest_mismatch"


class ArtifactTooLarge(ArtifactRefused):
    """This result is larger than one may be."""

    code = "too_large"


class QuotaExceeded(ArtifactTooLarge):
    """The results of one job may not be more than that."""

    code = "quota_exceeded"


class StorageFull(ArtifactRefused):
    """The control plane's disk is nearly full. Ask again later."""

    code = "storage_full"
