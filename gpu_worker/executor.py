"""What a runner needs from the thing that runs apps: containers (containers.py) or, for demos, processes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from gpu_worker.commands import Cancel
from gpu_worker.journal import JobFacts, JobRecord
from gpu_worker.process_identity import ProcessIdentity
from gpu_worker.protocol import Claim, Gpu


@dataclass(frozen=True)
class RuntimeState:
    """*status*: created, running, paused, exited, or gone (removed by somebody else)."""

    status: str
    exit_code: int | None = None
    oom_killed: bool = False


@dataclass(frozen=True)
class Prepared:
    """What a build has left to start from: an image, or a command in a directory."""

    image_id: str | None = None
    argv: tuple[str, ...] = ()
    directory: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Found:
    """Something of ours on this machine: the facts from its own labels, and its state."""

    facts: JobFacts
    reference: str
    status: str
    image_id: str | None = None


class Remark(bytes):
    """A piece of output that is the worker's own, in the place of what is missing there."""


class Runtime(Protocol):
    """One started (or created) app."""

    @property
    def reference(self) -> str:
        """A short name for people: a container id, or a pid."""
        ...

    @property
    def image_id(self) -> str | None: ...

    def address(self) -> tuple[str, int]:
        """Where the app listens, as this process reaches it. Raises EngineError."""
        ...

    def state(self) -> RuntimeState:
        """Raises EngineSilent when nobody can tell."""
        ...

    def start(self) -> None:
        """Start what is created or has exited. Raises JobFailed with the engine's reason."""
        ...

    def follow(self, position: str | None, *, over: Cancel, stop: Cancel) -> Iterator[tuple[bytes, str]]:
        """Output after *position* (None: from the beginning), with the position behind each piece, until the end.

        *over*: the app has ended, and what is left is wanted soon.
        """
        ...

    def environment(self) -> Mapping[str, str]:
        """What the app was started with: after a restart of the worker the only place that knows its secrets."""
        ...

    def listening(self) -> Sequence[str] | None:
        """``address:port`` of its listening sockets, None where they cannot be seen; for the diagnosis."""
        ...

    def execute(self, argv: Sequence[str]) -> tuple[int | None, bytes]:
        """Run a short program beside the app, in its surroundings: exit code and output; (None, …) where it cannot.

        Waits for its end, as long as a call to the engine may take. One that takes longer, or says more than such a
        program has to say, has no exit code either. Raises EngineError.
        """
        ...

    def results(self, path: str = "") -> Generator[bytes, None, None] | None:
        """A tar of what a batch job left in its results directory, or of the one file *path* in it; None: nothing.

        Raises EngineError, also while it is read. Close it (`with closing`, or read it to its end) soon: until then
        the engine may answer nothing else about this app.
        """
        ...

    def result_paths(self) -> Sequence[str]:
        """The files in the results directory, by their paths in it. Raises EngineError."""
        ...

    def news(self) -> Sequence[str]:
        """What the app met at its limits since the last call, as sentences for its owner. Raises EngineError."""
        ...

    def stop(self, grace_seconds: float) -> None:
        """SIGTERM, grace, SIGKILL; nothing of it runs afterwards. Nothing to do is fine."""
        ...

    def remove(self) -> None:
        """Remove every trace. Idempotent. Raises EngineError when something is left."""
        ...


class Executor(Protocol):
    @property
    def name(self) -> str: ...

    def at_hand(self, claim: Claim) -> Prepared | None:
        """What an earlier build of the same commit and inputs has left; None where the source has to be read first.

        Quick. Raises EngineSilent.
        """
        ...

    def foundation(self, claim: Claim, source: Path) -> Mapping[str, str]:
        """The environment of the image that the app will be built on, where it is here already; else nothing.

        Quick. Raises JobFailed as `prepare` would, and EngineSilent.
        """
        ...

    def prepare(
        self,
        claim: Claim,
        source: Path,
        *,
        output: Callable[[bytes], None],
        cancel: Cancel,
        started: Callable[[ProcessIdentity | None], None],
    ) -> Prepared:
        """Build. Raises JobFailed, JobInterrupted."""
        ...

    def launch(
        self,
        record: JobRecord,
        prepared: Prepared,
        *,
        variables: Mapping[str, str],
        secrets: Mapping[str, str],
        assigned: Sequence[Gpu],
    ) -> Runtime:
        """Start the app. Raises JobFailed. A second call for the same lease finds the first one's app."""
        ...

    def find(self, record: JobRecord) -> Runtime | None:
        """The app of this lease, in any state. Raises EngineSilent."""
        ...

    def note_good(self, record: JobRecord) -> None:
        """The app has come to run: what it was made from is worth keeping. Never fails."""
        ...

    def incarnation(self) -> str | None:
        """Another one after each restart of the engine, which may end apps; None where that cannot be told.

        Raises EngineError.
        """
        ...

    def inventory(self) -> list[Found]:
        """Everything of this worker, in any state. Raises EngineSilent."""
        ...
