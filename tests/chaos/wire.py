"""How a simulated worker reaches the control plane: the protocol's calls as plain values, and what may go wrong.

`DirectWire` calls the functions behind the API's views, in this process and transaction. `http_wire.py` sends the same
calls through a real socket to a real web process.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar
from uuid import UUID

from jobs import lifecycle
from jobs.errors import EventGap, JobError
from workers import claiming, registry, reports
from workers.api.authentication import worker_of
from workers.errors import WorkerError

_T = TypeVar("_T")


class Loss(StrEnum):
    """What the network does to one call."""

    NONE = "none"
    REQUEST = "request"  # it never arrives
    ANSWER = "answer"  # it is done, and the caller never learns of it
    CUT = "cut"  # the connection breaks right after the request: done, or not (over HTTP only)


class Lost(Exception):
    """No answer came. Whether the call was done is not known to the worker."""


class Refused(Exception):
    """The control plane said no, with a stable code."""

    def __init__(self, code: str, expected_seq: int | None = None) -> None:
        super().__init__(code)
        self.code, self.expected_seq = code, expected_seq


@dataclass(frozen=True)
class Hold:
    lease: UUID
    state: str


@dataclass(frozen=True)
class Reading:
    """One GPU as the driver tells it. MiB."""

    uuid: str
    index: int
    total_mib: int
    free_mib: int
    ours: tuple[tuple[UUID, int], ...] = ()
    foreign_mib: int = 0
    healthy: bool = True


@dataclass(frozen=True)
class About:
    """What the machine says of itself at register."""

    max_gpu: int
    max_cpu: int
    features: tuple[str, ...]


@dataclass(frozen=True)
class Told:
    """The control plane's wish for one lease."""

    lease: UUID
    want: str
    next_seq: int | None = None


@dataclass(frozen=True)
class Answer:
    session: int
    standing: str
    told: tuple[Told, ...]


@dataclass(frozen=True)
class Claimed:
    job: UUID
    lease: UUID
    mode: str
    owner_repo: str
    gpus: tuple[str, ...]
    vram_mib: int | None


@dataclass(frozen=True)
class Receipt:
    accepted_through: int
    state: str
    stop: bool


@dataclass(frozen=True)
class Said:
    """One event of a job, numbered per lease."""

    seq: int
    kind: str
    data: dict[str, Any] = field(default_factory=dict)


class Wire(ABC):
    """One worker's way to the control plane, with its credential. Raises Lost and Refused."""

    def __init__(self, credential: str) -> None:
        self.credential = credential

    @property
    def worker_id(self) -> UUID:
        return UUID(self.credential.split("_")[1])

    def close(self) -> None:  # noqa: B027  # nothing is open where nothing is sent
        """Let go of what is open."""

    @abstractmethod
    def register(
        self, about: About, gpus: Sequence[Reading], holds: Sequence[Hold] | None, *, loss: Loss
    ) -> Answer: ...

    @abstractmethod
    def heartbeat(
        self,
        session: int,
        beat: int,
        paused: str | None,
        gpus: Sequence[Reading],
        holds: Sequence[Hold] | None,
        *,
        loss: Loss,
    ) -> Answer: ...

    @abstractmethod
    def claim(
        self, session: int, gpu: int, cpu: int, gpus: Sequence[Reading], key: str, *, loss: Loss
    ) -> Claimed | None: ...

    @abstractmethod
    def report(self, session: int, job: UUID, lease: UUID, events: Sequence[Said], *, loss: Loss) -> Receipt: ...

    @abstractmethod
    def renew(self, session: int, job: UUID, lease: UUID, *, loss: Loss) -> None: ...


class DirectWire(Wire):
    """Calls what the views call, after the same authentication."""

    def register(self, about: About, gpus: Sequence[Reading], holds: Sequence[Hold] | None, *, loss: Loss) -> Answer:
        registration = reports.Registration(
            capabilities=reports.Capabilities(
                worker_id=self.worker_id,
                worker_version="1",
                executor="docker",
                max_gpu_jobs=about.max_gpu,
                max_cpu_jobs=about.max_cpu,
                hostname=None,
                engine_id=None,
                features=list(about.features),
                gpu_count=len(gpus),
                disk=None,
                facts={},
            ),
            gpus=_reports(gpus),
            gateway_url=None,
            holds=_holds(holds),
            doctor=[],
        )
        return self._call(lambda worker: _answer(registry.register(worker.pk, registration)), loss)

    def heartbeat(
        self,
        session: int,
        beat: int,
        paused: str | None,
        gpus: Sequence[Reading],
        holds: Sequence[Hold] | None,
        *,
        loss: Loss,
    ) -> Answer:
        heartbeat = reports.Heartbeat(session, beat, paused is None, paused, None, _reports(gpus), None, _holds(holds))
        return self._call(lambda worker: _answer(registry.heartbeat(worker.pk, heartbeat)), loss)

    def claim(
        self, session: int, gpu: int, cpu: int, gpus: Sequence[Reading], key: str, *, loss: Loss
    ) -> Claimed | None:
        request = reports.ClaimRequest(session, gpu, cpu, _reports(gpus))

        def call(worker: Any) -> Claimed | None:
            found = claiming.claim(worker, request, key=key, data_url="http://data")
            return None if found is None else _claimed(found)

        return self._call(call, loss)

    def report(self, session: int, job: UUID, lease: UUID, events: Sequence[Said], *, loss: Loss) -> Receipt:
        def call(worker: Any) -> Receipt:
            said = [lifecycle.Report(event.seq, event.kind, event.data) for event in events]
            taken = lifecycle.record(worker.pk, session=session, job_id=job, lease_id=lease, reports=said)
            return Receipt(taken.accepted_through, taken.state, taken.stop)

        return self._call(call, loss)

    def renew(self, session: int, job: UUID, lease: UUID, *, loss: Loss) -> None:
        self._call(lambda worker: lifecycle.renew_lease(worker.pk, session=session, job_id=job, lease_id=lease), loss)

    def _call(self, function: Callable[[Any], _T], loss: Loss) -> _T:
        if loss is Loss.REQUEST:
            raise Lost
        try:
            answer = function(worker_of(f"Bearer {self.credential}".encode()))
        except EventGap as gap:
            refusal = Refused(gap.code, gap.expected_seq)
        except (JobError, WorkerError) as error:
            refusal = Refused(error.code)
        else:
            if loss is Loss.ANSWER:
                raise Lost
            return answer
        if loss is Loss.ANSWER:
            raise Lost
        raise refusal


def _reports(gpus: Sequence[Reading]) -> list[reports.GpuReport]:
    return [
        reports.GpuReport(
            uuid=gpu.uuid,
            index=gpu.index,
            vendor="NVIDIA",
            model="NVIDIA GeForce RTX 4090",
            total_vram_mib=gpu.total_mib,
            free_vram_mib=gpu.free_mib,
            ours=[reports.OursOnGpu(lease, mib) for lease, mib in gpu.ours],
            foreign=[reports.ForeignOnGpu(4711, "python", gpu.foreign_mib)] if gpu.foreign_mib else [],
            healthy=gpu.healthy,
        )
        for gpu in gpus
    ]


def _holds(holds: Sequence[Hold] | None) -> list[reports.HoldReport] | None:
    return None if holds is None else [reports.HoldReport(hold.lease, hold.state) for hold in holds]


def _answer(answer: registry.Answer) -> Answer:
    told = tuple(Told(each.lease_id, each.want, each.next_seq) for each in answer.leases)
    return Answer(answer.session, answer.standing, told)


def _claimed(found: dict[str, Any]) -> Claimed:
    return Claimed(
        job=found["id"],
        lease=found["lease"],
        mode=str(found["mode"]),
        owner_repo=f"{found['owner']}/{found['repo']}",
        gpus=tuple(found["gpus"]),
        vram_mib=found["requirements"]["vram_mib"],
    )
