"""What must survive a restart of the worker: one small file per lease, replaced by rename, without any secret.

The engine's labels say what runs; the journal adds what labels cannot: how far the job was, the events that the
server has not confirmed, and where the logs go on.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from gpu_worker.atomic import write_private
from gpu_worker.gpu_use import Use
from gpu_worker.log_shipping import Mark
from gpu_worker.process_identity import ProcessIdentity
from gpu_worker.protocol import Claim, Event, Limits

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class JobFacts:
    """What a job is, as far as it may be written down: also kept in a label of its container."""

    job: str
    lease: str
    attempt: int
    kind: str
    mode: str
    owner: str
    repo: str
    repository_id: str
    revision: str
    port: int
    gpus: tuple[str, ...]
    base_path: str = "/"
    limits: Limits = field(default_factory=Limits)
    startup_timeout_seconds: float | None = None
    secret_names: tuple[str, ...] = ()
    artifacts_url: str | None = None
    """Where the results of a batch job go."""

    @classmethod
    def of(cls, claim: Claim) -> JobFacts:
        return cls(
            job=claim.job,
            lease=claim.lease,
            attempt=claim.attempt,
            kind=claim.kind,
            mode=claim.mode,
            owner=claim.owner,
            repo=claim.repo,
            repository_id=claim.repository_id,
            revision=claim.revision,
            port=claim.port,
            gpus=claim.gpus,
            base_path=claim.base_path,
            limits=claim.limits,
            startup_timeout_seconds=claim.startup_timeout_seconds,
            secret_names=tuple(sorted(claim.secrets)),
            artifacts_url=claim.artifacts_url,
        )

    def dump(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> JobFacts:
        """Raises ValueError when *text* was not written by dump."""
        try:
            values = _known(cls, json.loads(text))
            values["limits"] = Limits(**_known(Limits, values["limits"]))
            values["gpus"] = tuple(values["gpus"])
            values["secret_names"] = tuple(values["secret_names"])
            return cls(**values)
        except (KeyError, TypeError) as problem:
            raise ValueError(f"not a job record: {problem}") from problem


@dataclass(frozen=True)
class Departed:
    """An app that is gone, or about to go, and what it used of each GPU: all of it should come back."""

    container: str
    boot_id: str
    uses: Mapping[str, Use]


@dataclass
class JobRecord:
    """A job in progress. Changed by its runner and its reporter, each under *lock*."""

    facts: JobFacts
    phase: str = "leased"
    """leased, building, starting, running, stopping, exited: the words of a hold."""
    runtime_token_sha256: str = ""
    image_id: str | None = None
    boot_id: str = ""
    """Of the machine, when the app was started last."""
    engine: str | None = None
    """Incarnation of the container engine, likewise."""
    child: ProcessIdentity | None = None
    """A running build or pip: ended by the next start of the worker if we die first."""
    process: ProcessIdentity | None = None
    """The app itself, under the process executor."""
    last_event: str = ""
    unknown_seconds: float = 0.0
    """For how long the server has not known this lease, over restarts of the worker."""
    running_since: float | None = None
    """Monotonic seconds of the boot `boot_id`: a batch job's time is limited, over restarts of the worker too."""
    failure: tuple[str, str] | None = None
    """Reason and sentence of a failure that is not told yet: what is left of the app comes before it."""
    ending: tuple[str, str | None] | None = None
    """Kind and reason of the wish by which the app is being stopped: the next process ends the job by the same."""
    kill_at: float | None = None
    """When the grace of that stop ends: monotonic seconds of the boot `boot_id`."""
    departed: Departed | None = None
    """Only once a GPU job's app is being removed."""
    unreleased: str | None = None
    """What a GPU has not given back of it, in a sentence; None: nothing that is known."""
    found_ended: bool = False
    """The app had ended when this process found it, and nothing was done about it yet. Not written down."""
    next_seq: int = 1
    pending: list[Event] = field(default_factory=list)
    marks: dict[str, Mark] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock, repr=False, compare=False)


class Journal:
    def __init__(self, data_dir: Path) -> None:
        self._dir = data_dir / "jobs"
        self._dir.mkdir(parents=True, exist_ok=True)
        self._trouble: str | None = None

    def save(self, record: JobRecord, *, durable: bool = True) -> None:
        """Write the record; *durable* off for log positions, whose loss costs nothing but a repeat.

        A disk that takes nothing is told in the log and not raised: what the journal lacks is missed only after a
        crash, and a job that died of it now would leave an app behind that nobody can stop.
        """
        with record.lock:
            content = {
                "facts": asdict(record.facts),
                "phase": record.phase,
                "image_id": record.image_id,
                "runtime_token_sha256": record.runtime_token_sha256,
                "boot_id": record.boot_id,
                "engine": record.engine,
                "next_seq": record.next_seq,
                "last_event": record.last_event,
                "unknown_seconds": record.unknown_seconds,
                "running_since": record.running_since,
                "failure": record.failure,
                "ending": record.ending,
                "kill_at": record.kill_at,
                "departed": asdict(record.departed) if record.departed else None,
                "unreleased": record.unreleased,
                "child": asdict(record.child) if record.child else None,
                "process": asdict(record.process) if record.process else None,
                "pending": [event.wire() for event in record.pending],
                "marks": {name: asdict(mark) for name, mark in record.marks.items()},
            }
            try:
                write_private(self._path(record.facts.lease), json.dumps(content, indent=1), durable=durable)
            except OSError as problem:
                self._say(problem.strerror or str(problem))
            else:
                self._say(None)

    def _say(self, trouble: str | None) -> None:
        """Log a change, not each repetition."""
        if trouble and trouble != self._trouble:
            logger.error(
                "journal cannot be written; jobs go on", extra={"action": "journal_unwritable", "problem": trouble}
            )
        self._trouble = trouble

    def drop(self, lease: str) -> None:
        self._path(lease).unlink(missing_ok=True)

    def load_all(self, *, set_aside: bool = False) -> list[JobRecord]:
        """Every record that can be read; one that cannot is told in the log, and never a reason not to start.

        *set_aside*: rename one that makes no sense; for the worker whose journal it is, not for who only looks.
        """
        records = []
        for path in sorted(self._dir.glob("*.json")):
            try:
                records.append(_record(json.loads(path.read_text())))
            except FileNotFoundError:
                continue  # dropped since the look at the directory: the job is over
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
                logger.error(
                    "journal entry cannot be read",
                    extra={"action": "journal_damaged", "path": str(path), "problem": str(problem)},
                )
                if set_aside and not isinstance(problem, OSError):
                    with contextlib.suppress(OSError):
                        path.rename(path.with_suffix(".damaged"))
        return records

    def _path(self, lease: str) -> Path:
        return self._dir / f"{lease}.json"


def _known(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Of *values* what *kind* has a field for: a newer worker may have written more. Raises TypeError."""
    if not isinstance(values, Mapping):
        raise TypeError(f"{kind.__name__}: not an object")
    names = {one.name for one in fields(kind)}
    return {name: value for name, value in values.items() if name in names}


def _record(content: Mapping[str, Any]) -> JobRecord:
    return JobRecord(
        facts=JobFacts.parse(json.dumps(content["facts"])),
        phase=content["phase"],
        image_id=content["image_id"],
        runtime_token_sha256=content["runtime_token_sha256"],
        boot_id=content["boot_id"],
        engine=content.get("engine"),
        next_seq=content["next_seq"],
        last_event=content["last_event"],
        unknown_seconds=content.get("unknown_seconds", 0.0),
        running_since=content.get("running_since"),
        failure=_failure(content.get("failure")),
        ending=_ending(content.get("ending")),
        kill_at=content.get("kill_at"),
        departed=_departed(content.get("departed")),
        unreleased=content.get("unreleased"),
        child=_identity(content["child"]),
        process=_identity(content["process"]),
        pending=[_event(event) for event in content["pending"]],
        marks={name: Mark(**_known(Mark, mark)) for name, mark in content["marks"].items()},
    )


def _identity(content: Mapping[str, Any] | None) -> ProcessIdentity | None:
    return ProcessIdentity(**_known(ProcessIdentity, content)) if content else None


def _failure(content: Sequence[str] | None) -> tuple[str, str] | None:
    return None if content is None else (content[0], content[1])


def _ending(content: Sequence[str | None] | None) -> tuple[str, str | None] | None:
    return None if content is None or content[0] is None else (content[0], content[1])


def _departed(content: Mapping[str, Any] | None) -> Departed | None:
    if not content:
        return None
    uses = {uuid: Use(**_known(Use, use)) for uuid, use in content["uses"].items()}
    return Departed(content["container"], content["boot_id"], uses)


def _event(wire: Mapping[str, Any]) -> Event:
    return Event(wire["seq"], wire["kind"], {key: value for key, value in wire.items() if key not in ("seq", "kind")})
