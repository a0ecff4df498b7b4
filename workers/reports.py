"""What a worker says of itself, as plain values: read by `api/serializers`, acted on by `registry.py`.

A field that is None was not known to the worker. Memory is in MiB; IMPOSSIBLE stands for a number that no memory has.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

IMPOSSIBLE = -1  # below zero, or too large to be stored: `readings` doubts it


@dataclass(frozen=True)
class OursOnGpu:
    """What one lease of ours uses on a GPU; None where it cannot be measured."""

    lease: uuid.UUID
    mib: int | None = None


@dataclass(frozen=True)
class ForeignOnGpu:
    """A process on a GPU that belongs to none of our leases."""

    pid: int | None = None
    name: str | None = None
    mib: int | None = None


@dataclass(frozen=True)
class GpuReport:
    """One GPU as the driver tells it now."""

    uuid: str
    index: int | None = None
    vendor: str | None = None
    model: str | None = None
    total_vram_mib: int | None = None
    free_vram_mib: int | None = None
    ours: list[OursOnGpu] = field(default_factory=list)
    foreign: list[ForeignOnGpu] = field(default_factory=list)
    utilization_pct: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    compute_capability: str | None = None
    mig: bool | None = None
    healthy: bool | None = None
    error: str | None = None
    simulated: bool = False


@dataclass(frozen=True)
class Capabilities:
    """What the machine is and can. `facts` holds the whole report, as it may be shown to people."""

    worker_id: uuid.UUID
    worker_version: str
    executor: str
    max_gpu_jobs: int
    max_cpu_jobs: int
    hostname: str | None
    engine_id: str | None
    features: list[str]
    gpu_count: int | None
    disk: dict[str, int | None] | None
    facts: dict[str, Any]


@dataclass(frozen=True)
class HoldReport:
    """One lease that the worker has in any phase."""

    lease: uuid.UUID
    state: str
    image_id: str | None = None
    container: str | None = None
    healthy: bool | None = None
    kind: str | None = None  # of its job: cpu or gpu
    gpus: list[str] | None = None  # UUIDs of those that its container was given
    reason: str | None = None  # why the worker still has it, where that is not plain from its state


@dataclass(frozen=True)
class DoctorCheck:
    """One line of the worker's self-examination; `ok` None: could not be checked."""

    check: str
    ok: bool | None
    detail: str | None = None
    remedy: str | None = None


@dataclass(frozen=True)
class Registration:
    """What a worker sends after every start."""

    capabilities: Capabilities
    gpus: list[GpuReport]
    gateway_url: str | None
    holds: list[HoldReport] | None
    doctor: list[DoctorCheck]


@dataclass(frozen=True)
class Heartbeat:
    """What a worker sends every few seconds. `capabilities`, `disk`, `doctor`: None where nothing changed."""

    session: int
    beat: int
    accepting: bool
    paused_reason: str | None
    capabilities: Capabilities | None
    gpus: list[GpuReport]
    disk: dict[str, int | None] | None
    holds: list[HoldReport] | None
    doctor: list[DoctorCheck] | None = None


@dataclass(frozen=True)
class ClaimRequest:
    """A worker asks for one job."""

    session: int
    free_gpu: int
    free_cpu: int
    gpus: list[GpuReport]


@dataclass(frozen=True)
class Enrollment:
    """A machine swaps a token for a credential."""

    token: str
    nonce: str
    hostname: str
    version: str
    gateway_url: str | None


@dataclass(frozen=True)
class EventReport:
    """One event of a job, numbered per lease from 1. `data`: the fields of its kind."""

    seq: int
    kind: str
    data: dict[str, Any]


@dataclass(frozen=True)
class LogReport:
    """Contiguous text of one stream; `offset` counts bytes of UTF-8."""

    stream: str
    offset: int
    text: str


@dataclass(frozen=True)
class Events:
    """Events and log text of one job under one lease."""

    session: int
    lease: uuid.UUID
    events: list[EventReport]
    logs: list[LogReport]


@dataclass(frozen=True)
class Renewal:
    """A worker asks for more time for one lease."""

    session: int
    lease: uuid.UUID
