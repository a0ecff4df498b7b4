"""Errors of the workers room.

    WorkerError
    ├── CredentialInvalid    401 credential_invalid    not final: the worker keeps its containers and asks again
    ├── CredentialRevoked    401 credential_revoked    final; carries a proof, so that nobody else can say it
    ├── TokenUnknown         401 token_unknown
    ├── TokenUsed            401 token_used
    ├── TokenExpired         401 token_expired
    ├── NotYourWorker        403 not_your_worker
    ├── AddressNotAllowed    403 address_not_allowed
    ├── UnknownWorker        404 not_found
    ├── NameTaken            409 name_taken
    ├── WrongStanding        409 wrong_standing
    ├── InvalidReport        422 invalid               knows the fields
    ├── Throttled            429 throttled             knows when to come again
    └── GpuWorkersDisabled   503 gpu_workers_disabled

The docstring is the default message: a sentence that may be shown to a person.
"""

from __future__ import annotations


class WorkerError(Exception):
    """Something is wrong with this worker."""

    code = "worker_error"

    def __init__(self, message: str = "") -> None:
        super().__init__(message or type(self).__doc__ or "")


class CredentialInvalid(WorkerError):
    """This credential is not valid."""

    code = "credential_invalid"


class CredentialRevoked(WorkerError):
    """This worker was revoked."""

    code = "credential_revoked"

    def __init__(self, *, proof: str) -> None:
        super().__init__()
        self.proof = proof


class TokenUnknown(WorkerError):
    """This enrollment token is not known here."""

    code = "token_unknown"


class TokenUsed(WorkerError):
    """This enrollment token was used already."""

    code = "token_used"


class TokenExpired(WorkerError):
    """This enrollment token has expired."""

    code = "token_expired"


class NotYourWorker(WorkerError):
    """This credential belongs to another worker."""

    code = "not_your_worker"


class AddressNotAllowed(WorkerError):
    """Workers may not call from this address."""

    code = "address_not_allowed"


class UnknownWorker(WorkerError):
    """There is no such worker."""

    code = "not_found"


class NameTaken(WorkerError):
    """Another worker has this name."""

    code = "name_taken"


class WrongStanding(WorkerError):
    """The worker's standing does not allow that."""

    code = "wrong_standing"


class InvalidReport(WorkerError):
    """Some fields are not valid."""

    code = "invalid"

    def __init__(self, errors: dict[str, list[str]]) -> None:
        super().__init__()
        self.errors = errors


class Throttled(WorkerError):
    """Too many requests; wait and try again."""

    code = "throttled"

    def __init__(self, *, retry_after_seconds: float) -> None:
        super().__init__()
        self.retry_after_seconds = retry_after_seconds


class GpuWorkersDisabled(WorkerError):
    """Remote GPU workers are switched off here."""

    code = "gpu_workers_disabled"
