"""What a command has to say, to people and to programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpu_worker import engine_away, errors

EXIT_OK, EXIT_UNEXPECTED, EXIT_CONFIG, EXIT_FINAL = 0, 1, 2, 78


@dataclass(frozen=True)
class Answer:
    facts: Mapping[str, object]
    """For ``--json``: one object."""
    text: str
    code: int = EXIT_OK


_CODES: tuple[tuple[type[errors.WorkerError], str, int], ...] = (  # the first that fits counts
    (errors.ConfigError, "cannot_work", EXIT_CONFIG),
    (errors.Revoked, "revoked", EXIT_FINAL),
    (errors.Superseded, "superseded", EXIT_FINAL),
    (errors.Unreachable, "unreachable", EXIT_UNEXPECTED),
    (errors.Refused, "refused", EXIT_UNEXPECTED),
    (errors.WireError, "bad_answer", EXIT_UNEXPECTED),
    (errors.EngineSilent, "engine_silent", EXIT_UNEXPECTED),
    (errors.EngineError, "engine_refused", EXIT_UNEXPECTED),
)


@dataclass(frozen=True)
class Failure:
    """Why a command has no answer."""

    code: str
    """For programs: docs/worker.md lists them, and they stay."""
    sentence: str
    exit: int

    @classmethod
    def of(cls, problem: errors.WorkerError) -> Failure:
        for kind, code, exit_code in _CODES:
            if isinstance(problem, kind):
                return cls(code, _sentence(problem), exit_code)
        return cls("unexpected", str(problem), EXIT_UNEXPECTED)

    def wire(self) -> dict[str, object]:
        return {"error": self.sentence, "code": self.code, "exit": self.exit}


def _sentence(problem: errors.WorkerError) -> str:
    return engine_away.sentence(problem) if isinstance(problem, errors.EngineSilent) else str(problem)
