"""The messages of the worker protocol v1, as this worker reads and writes them.

``fixtures/protocol/v1`` is the truth; this module is tested against it and shares no code with the server.
Reading is tolerant: unknown fields are ignored, a missing or null optional field is None. A required field that is
missing or has the wrong type is a WireError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from gpu_worker.errors import WireError
from gpu_worker.gpu_trouble import Trouble

JsonObject = dict[str, Any]
_T = TypeVar("_T")

STREAMS = ("build", "run", "system")


# ---- reading ---------------------------------------------------------------------------------------------------


class Fields:
    """Typed look-ups in one JSON object of a message."""

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, Mapping):
            raise WireError(f"{where} is not a JSON object")
        self._values: Mapping[str, object] = value
        self._where = where

    def text(self, name: str) -> str:
        return self._required(name, self.optional_text(name))

    def optional_text(self, name: str) -> str | None:
        value = self._values.get(name)
        if value is None or isinstance(value, str):
            return value
        raise self._wrong(name, "a text")

    def integer(self, name: str) -> int:
        return self._required(name, self.optional_integer(name))

    def optional_integer(self, name: str) -> int | None:
        value = self._values.get(name)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        raise self._wrong(name, "a whole number")

    def number(self, name: str) -> float:
        return self._required(name, self.optional_number(name))

    def optional_number(self, name: str) -> float | None:
        value = self._values.get(name)
        if value is None:
            return None
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
        raise self._wrong(name, "a number")

    def boolean(self, name: str, default: bool) -> bool:
        value = self._values.get(name)
        if value is None:
            return default
        if isinstance(value, bool):
            return value
        raise self._wrong(name, "true or false")

    def objects(self, name: str) -> list[Fields]:
        return [Fields(item, f"{self._where}.{name}") for item in self._list(name)]

    def texts(self, name: str) -> tuple[str, ...]:
        items = self._list(name)
        if not all(isinstance(item, str) for item in items):
            raise self._wrong(name, "a list of texts")
        return tuple(str(item) for item in items)

    def text_map(self, name: str) -> dict[str, str]:
        value = self._values.get(name)
        if value is None:
            return {}
        if isinstance(value, Mapping) and all(isinstance(k, str) and isinstance(v, str) for k, v in value.items()):
            return dict(value)
        raise self._wrong(name, "an object of texts")

    def integer_map(self, name: str) -> dict[str, int] | None:
        value = self._values.get(name)
        if value is None:
            return None
        if isinstance(value, Mapping) and all(isinstance(v, int) for v in value.values()):
            return {str(key): number for key, number in value.items()}
        raise self._wrong(name, "an object of whole numbers")

    def nested(self, name: str) -> Fields:
        return Fields(self._values.get(name) or {}, f"{self._where}.{name}")

    def raw(self, name: str) -> object:
        return self._values.get(name)

    def _list(self, name: str) -> Sequence[object]:
        value = self._values.get(name)
        if value is None:
            return []
        if isinstance(value, list):
            return value
        raise self._wrong(name, "a list")

    def _required(self, name: str, value: _T | None) -> _T:
        if value is None:
            raise WireError(f"{self._where} lacks {name}")
        return value

    def _wrong(self, name: str, wanted: str) -> WireError:
        return WireError(f"{self._where}.{name} is not {wanted}")


@dataclass(frozen=True)
class Intervals:
    """Seconds, as the server wants them now."""

    heartbeat_seconds: float
    lease_seconds: float
    stale_seconds: float
    poll_seconds: float

    @classmethod
    def read(cls, fields: Fields) -> Intervals:
        names = ("heartbeat_seconds", "lease_seconds", "stale_seconds", "poll_seconds")
        values = [fields.number(name) for name in names]
        if min(values) <= 0:
            raise WireError("an interval is not above zero")
        return cls(*values)


DEFAULT_INTERVALS = Intervals(15, 90, 120, 15)
"""Only until the first answer of the server."""


@dataclass(frozen=True)
class Enrollment:
    worker_id: str
    name: str
    credential: str
    intervals: Intervals

    @classmethod
    def read(cls, message: object) -> Enrollment:
        fields = Fields(message, "enroll answer")
        return cls(
            worker_id=fields.text("worker_id"),
            name=fields.text("name"),
            credential=fields.text("credential"),
            intervals=Intervals.read(fields.nested("intervals")),
        )


@dataclass(frozen=True)
class Instruction:
    """What the server wants done with one lease."""

    lease: str
    want: str
    reason: str | None = None
    grace_seconds: float | None = None
    expires_in_seconds: float | None = None
    next_seq: int | None = None
    log_offsets: Mapping[str, int] | None = None
    runtime_token: str | None = None

    @classmethod
    def read(cls, fields: Fields) -> Instruction:
        return cls(
            lease=fields.text("lease"),
            want=fields.text("want"),
            reason=fields.optional_text("reason"),
            grace_seconds=fields.optional_number("grace_s"),
            expires_in_seconds=fields.optional_number("expires_in_s"),
            next_seq=fields.optional_integer("next_seq"),
            log_offsets=fields.integer_map("log_offsets"),
            runtime_token=fields.optional_text("runtime_token"),
        )


@dataclass(frozen=True)
class Desired:
    """The answer to register and heartbeat. *session* is there only after register."""

    intervals: Intervals
    standing: str
    gateway: str | None
    leases: tuple[Instruction, ...]
    session: int | None = None
    gateway_url: str | None = None
    """The address that the control plane calls, which may be another than we proposed."""
    gateway_detail: str | None = None
    """Why the gateway does not serve."""

    @classmethod
    def read(cls, message: object) -> Desired:
        fields = Fields(message, "answer")
        return cls(
            intervals=Intervals.read(fields.nested("intervals")),
            standing=fields.text("standing"),
            gateway=fields.optional_text("gateway"),
            session=fields.optional_integer("session"),
            gateway_url=fields.optional_text("gateway_url"),
            gateway_detail=fields.optional_text("gateway_detail"),
            leases=tuple(Instruction.read(item) for item in fields.objects("leases")),
        )


@dataclass(frozen=True)
class Limits:
    """What one job may use; None: the worker's default."""

    memory_mib: int | None = None
    cpus: float | None = None
    pids: int | None = None
    shm_mib: int | None = None
    build_timeout_seconds: float | None = None
    stop_after_disconnect_seconds: float | None = None
    run_timeout_seconds: float | None = None
    """Of a batch job; None: no limit."""

    @classmethod
    def read(cls, fields: Fields) -> Limits:
        return cls(
            memory_mib=fields.optional_integer("memory_mib"),
            cpus=fields.optional_number("cpus"),
            pids=fields.optional_integer("pids"),
            shm_mib=fields.optional_integer("shm_mib"),
            build_timeout_seconds=fields.optional_number("build_timeout_s"),
            stop_after_disconnect_seconds=fields.optional_number("stop_after_disconnect_s"),
            run_timeout_seconds=fields.optional_number("run_timeout_s"),
        )


@dataclass(frozen=True)
class Claim:
    """One job that is ours to run."""

    job: str
    lease: str
    attempt: int
    kind: str
    mode: str
    owner: str
    repo: str
    repository_id: str
    revision: str
    clone_url: str
    source_token: str = field(repr=False)
    runtime_token: str = field(repr=False)
    base_path: str
    port: int
    gpus: tuple[str, ...]
    environment: Mapping[str, str]
    secrets: Mapping[str, str] = field(repr=False)
    build_args: Mapping[str, str]
    limits: Limits
    lease_expires_in_seconds: float
    sdk: str | None = None
    app_file: str | None = None
    sdk_version: str | None = None
    python_version: str | None = None
    startup_timeout_seconds: float | None = None
    artifacts_url: str | None = None

    @classmethod
    def read(cls, message: object) -> Claim:
        fields = Fields(message, "claim answer")
        repository_id = fields.raw("repository_id")
        if not isinstance(repository_id, (str, int)):
            raise WireError("claim answer lacks repository_id")
        return cls(
            job=fields.text("id"),
            lease=fields.text("lease"),
            attempt=fields.integer("attempt"),
            kind=fields.text("kind"),
            mode=fields.text("mode"),
            owner=fields.text("owner"),
            repo=fields.text("repo"),
            repository_id=str(repository_id),
            revision=fields.text("revision"),
            clone_url=fields.text("clone_url"),
            source_token=fields.text("source_token"),
            runtime_token=fields.text("runtime_token"),
            base_path=fields.text("base_path"),
            port=fields.integer("port"),
            gpus=fields.texts("gpus"),
            environment=fields.text_map("environment"),
            secrets=fields.text_map("secrets"),
            build_args=fields.text_map("build_args"),
            limits=Limits.read(fields.nested("limits")),
            lease_expires_in_seconds=fields.number("lease_expires_in_s"),
            sdk=fields.optional_text("sdk"),
            app_file=fields.optional_text("app_file"),
            sdk_version=fields.optional_text("sdk_version"),
            python_version=fields.optional_text("python_version"),
            startup_timeout_seconds=fields.optional_number("startup_timeout_s"),
            artifacts_url=fields.optional_text("artifacts_url"),
        )


@dataclass(frozen=True)
class Receipt:
    """How far the server has our events and logs."""

    accepted_through: int
    log_offsets: Mapping[str, int]
    state: str
    stop_wished: bool
    stop_reason: str | None
    stop_grace_seconds: float | None

    @classmethod
    def read(cls, message: object) -> Receipt:
        fields = Fields(message, "events answer")
        stop = fields.nested("stop")
        return cls(
            accepted_through=fields.integer("accepted_through"),
            log_offsets=fields.integer_map("log_offsets") or {},
            state=fields.text("state"),
            stop_wished=fields.raw("stop") not in (None, False),
            stop_reason=stop.optional_text("reason"),
            stop_grace_seconds=stop.optional_number("grace_s"),
        )


def read_expiry(message: object) -> float:
    """Seconds until the lease ends, from the answer to a lease renewal."""
    return Fields(message, "lease answer").number("expires_in_s")


# ---- writing ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GpuUse:
    lease: str
    mib: int | None
    pids: tuple[int, ...] = ()
    """Of the processes; not told on the wire."""


@dataclass(frozen=True)
class ForeignProcess:
    pid: int
    name: str | None
    mib: int | None


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU as the driver tells it now; None where a field could not be read."""

    uuid: str
    index: int | None = None
    vendor: str | None = None
    model: str | None = None
    total_vram_mib: int | None = None
    free_vram_mib: int | None = None
    ours: tuple[GpuUse, ...] = ()
    foreign: tuple[ForeignProcess, ...] = ()
    utilization_pct: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    compute_capability: str | None = None
    mig: bool | None = None
    healthy: bool = True
    error: str | None = None
    simulated: bool = False
    trouble: Trouble | None = None
    """The same as *error*, with what helps: for the doctor on this machine, and not on the wire."""

    def wire(self) -> JsonObject:
        return {
            "uuid": self.uuid,
            "index": self.index,
            "vendor": self.vendor,
            "model": self.model,
            "total_vram_mib": self.total_vram_mib,
            "free_vram_mib": self.free_vram_mib,
            "ours": [{"lease": use.lease, "mib": use.mib} for use in self.ours],
            "foreign": [{"pid": other.pid, "name": other.name, "mib": other.mib} for other in self.foreign],
            "utilization_pct": self.utilization_pct,
            "temperature_c": self.temperature_c,
            "power_w": self.power_w,
            "compute_capability": self.compute_capability,
            "mig": self.mig,
            "healthy": self.healthy,
            "error": self.error,
            "simulated": self.simulated,
        }


@dataclass(frozen=True)
class Hold:
    """One lease this worker has, and how far it is."""

    lease: str
    state: str
    image_id: str | None = None
    container: str | None = None
    healthy: bool | None = None
    kind: str | None = None
    gpus: tuple[str, ...] = ()
    """UUIDs of those it was given, whether or not a process of it is on one now."""
    reason: str | None = None
    """Why it is still here, for operators, where its state does not say."""

    def wire(self) -> JsonObject:
        return {
            "lease": self.lease,
            "state": self.state,
            "image_id": self.image_id,
            "container": self.container,
            "healthy": self.healthy,
            "kind": self.kind,
            "gpus": list(self.gpus),
            "reason": self.reason,
        }


@dataclass(frozen=True)
class DoctorCheck:
    check: str
    ok: bool | None
    detail: str | None = None
    remedy: str | None = None

    def wire(self) -> JsonObject:
        return {"check": self.check, "ok": self.ok, "detail": self.detail, "remedy": self.remedy}


@dataclass(frozen=True)
class Event:
    """One step of a job. *seq* starts at 1 for each lease and has no holes."""

    seq: int
    kind: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    def wire(self) -> JsonObject:
        return {"seq": self.seq, "kind": self.kind, **self.facts}


@dataclass(frozen=True)
class LogChunk:
    stream: str
    offset: int
    text: str

    def wire(self) -> JsonObject:
        return {"stream": self.stream, "offset": self.offset, "text": self.text}
