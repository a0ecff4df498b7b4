"""What the runners of one worker share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gpu_worker.client import ControlPlane
from gpu_worker.cuda_requirement import Driver
from gpu_worker.errors import Final
from gpu_worker.executor import Executor
from gpu_worker.gpu_release import ReleaseWatch
from gpu_worker.journal import Journal
from gpu_worker.protocol import Gpu, Intervals
from gpu_worker.source import SourceFetcher


class Routes(Protocol):
    """The gateway, as a runner sees it. Neither method waits."""

    def open(self, lease: str, address: tuple[str, int], runtime_token_sha256: str) -> None: ...

    def close(self, lease: str) -> None: ...


@dataclass(frozen=True)
class Workshop:
    client: ControlPlane
    executor: Executor
    journal: Journal
    sources: SourceFetcher
    routes: Routes
    work_dir: Path
    worker_name: str
    gpus: Callable[[], Sequence[Gpu]]
    """As they were last probed."""
    driver: Callable[[], Driver]
    """Of these GPUs, likewise."""
    intervals: Callable[[], Intervals]
    contact_at: Callable[[], float]
    """Monotonic time of the control plane's last answer."""
    on_final: Callable[[Final], None]
    make_room: Callable[[], int]
    """Remove own images that nobody needs now, because the disk is full; how many. Waits for the engine."""
    releases: ReleaseWatch
    """What of GPUs is not given back by apps that are gone."""
    look_again: Callable[[], None]
    """Have the machine's GPUs looked at soon. Does not wait."""
    gpu_watch_seconds: float
    """How often it is asked inside a container whether its GPU is still there; 0: never."""
    unknown_lease_seconds: float
    """For how long an app is kept whose lease the control plane does not know."""
