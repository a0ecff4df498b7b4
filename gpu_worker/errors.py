"""Every error of the worker, as one tree.

WorkerError
├── ConfigError            the settings cannot work; exit 2
├── Final                  this worker must not go on; exit 78
│   ├── Revoked            an operator ended this worker's credential (proven)
│   └── Superseded         another process registered with our credential
├── CallFailed             a call to the control plane brought no usable answer
│   ├── Unreachable        worth another try later
│   └── Refused            the answer was an error; carries its stable code
│       ├── CredentialInvalid
│       ├── LeaseStale
│       └── EventGap
├── WireError              an answer that does not follow the protocol
├── EngineError            the container engine refused or did not answer
│   └── EngineSilent       it did not answer at all
├── JobFailed              the job ends with a reason code and a sentence for its owner
├── JobDeclined            the job goes back to the queue and does not count as an attempt
└── JobInterrupted         a stop, a lost lease or a shutdown cut the step short
"""

from __future__ import annotations


class WorkerError(Exception):
    """The worker met a problem."""


class ConfigError(WorkerError):
    """The settings cannot work."""


class Final(WorkerError):
    """This worker must not go on."""


class Revoked(Final):
    """This worker was revoked by an operator."""


class Superseded(Final):
    """Another process has registered with this worker's credential."""


class CallFailed(WorkerError):
    """A call to the control plane brought no usable answer."""


class Unreachable(CallFailed):
    """The control plane cannot be reached now."""


class Refused(CallFailed):
    """The control plane answered with an error."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(f"{code} ({status}): {detail}")
        self.status = status
        self.code = code
        self.detail = detail


class CredentialInvalid(Refused):
    """The credential is not accepted now. Not final: a restored database may know it again."""


class LeaseStale(Refused):
    """The right to run this job under this lease has ended."""


class EventGap(Refused):
    """The control plane expects another event number."""

    def __init__(self, status: int, code: str, detail: str, *, expected_seq: int) -> None:
        super().__init__(status, code, detail)
        self.expected_seq = expected_seq


class WireError(WorkerError):
    """A message does not follow the protocol."""


class EngineError(WorkerError):
    """The container engine refused."""


class EngineSilent(EngineError):
    """The container engine does not answer."""


class JobFailed(WorkerError):
    """The job cannot go on; its owner reads why."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class JobDeclined(WorkerError):
    """This worker gives the job back uncounted."""

    def __init__(self, reason: str, detail: str | None = None, *, cuda: str | None = None) -> None:
        super().__init__(detail or reason)
        self.reason = reason
        self.detail = detail
        self.cuda = cuda
        """The least version of CUDA that would have done, where that is the reason."""


class JobInterrupted(WorkerError):
    """The step was cut short from outside."""
