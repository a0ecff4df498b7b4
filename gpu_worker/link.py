"""The worker's standing with the control plane: session, intervals, and the newest desired list."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from gpu_worker.client import ControlPlane
from gpu_worker.config import WorkerConfig
from gpu_worker.containers import ContainerEngine
from gpu_worker.executor import Executor
from gpu_worker.holdings import Holdings
from gpu_worker.machine import Machine, Picture
from gpu_worker.protocol import DEFAULT_INTERVALS, Desired, DoctorCheck, Instruction, Intervals, JsonObject

logger = logging.getLogger(__name__)

Reason = Callable[[Picture], str | None]
"""Looks at the machine and says in a sentence why jobs are not taken now; None where it sees no reason."""


class Link:
    """Register and heartbeat, and what their answers said. Thread-safe."""

    def __init__(
        self,
        client: ControlPlane,
        config: WorkerConfig,
        machine: Machine,
        holdings: Holdings,
        executor: Executor,
        *,
        reasons: Sequence[Reason] = (),
    ) -> None:
        """*reasons* keep the worker from taking any job; the first that has something to say is told."""
        self._reasons = tuple(reasons)
        self._client, self._config, self._machine, self._holdings = client, config, machine, holdings
        self._engine_needed = isinstance(executor, ContainerEngine)
        self._lock = threading.Lock()
        self._beat = 0
        self._capabilities_sent: JsonObject | None = None
        self._doctor: list[JsonObject] | None = None
        """What the doctor found since it was told last; None: nothing new."""
        self.intervals: Intervals = DEFAULT_INTERVALS
        self.standing = "open"
        self.gateway: str | None = None
        self.gateway_called: str | None = None
        self.gateway_detail: str | None = None
        self.contact_at = 0.0
        """Monotonic time of the last answer; 0: none yet."""
        self.instructions: dict[str, Instruction] = {}
        self.stopping = False
        self.inventory_done = False
        self.changed: Callable[[], None] = lambda: None
        """Called after each answer."""

    def register(self, *, gateway_url: str | None, doctor: list[DoctorCheck]) -> None:
        """Open a session. Raises what the client raises."""
        picture = self._machine.picture(self.intervals.heartbeat_seconds)
        capabilities = self._machine.capabilities(picture)
        asked_at = time.monotonic()
        desired = self._client.register(
            capabilities=capabilities,
            gpus=[gpu.wire() for gpu in picture.gpu.gpus],
            gateway_url=gateway_url,
            holds=self._holds(picture),
            doctor=[check.wire() for check in doctor],
        )
        with self._lock:
            self._capabilities_sent, self._beat = capabilities, 0
        self._take(desired, asked_at)

    def examined(self, checks: Sequence[DoctorCheck]) -> None:
        """The doctor was here again: the next heartbeat tells."""
        with self._lock:
            self._doctor = [check.wire() for check in checks]

    def beat(self) -> None:
        """One heartbeat, from the newest picture of the machine; never waits for engine or driver."""
        picture = self._machine.picture(self.intervals.heartbeat_seconds)
        capabilities = self._machine.capabilities(picture)
        reason = self.paused_reason(picture)
        with self._lock:
            self._beat += 1
            beat = self._beat
            changed = capabilities != self._capabilities_sent
            doctor = self._doctor
        body: JsonObject = {
            "beat": beat,
            "accepting": reason is None,
            "paused_reason": reason,
            "disk": picture.disk,
            "gpus": [gpu.wire() for gpu in picture.gpu.gpus],
            "holds": self._holds(picture),
        }
        if changed:
            body["capabilities"] = capabilities
        if doctor is not None:
            body["doctor"] = doctor
        asked_at = time.monotonic()
        desired = self._client.heartbeat(body, read_timeout=max(2.0, min(15.0, self.intervals.stale_seconds / 4)))
        with self._lock:
            self._capabilities_sent = capabilities
            if self._doctor is doctor:  # it may have come again meanwhile
                self._doctor = None
        self._take(desired, asked_at)

    def paused_reason(self, picture: Picture | None = None) -> str | None:
        """Why this worker takes no job now, in words for people; None when it does."""
        picture = picture or self._machine.picture(self.intervals.heartbeat_seconds)
        if self.stopping:
            return "The worker is shutting down."
        if picture.found is None:
            return "The container engine does not answer."
        if not self.inventory_done:
            return "The worker is looking at what it left running."
        return next((sentence for reason in self._reasons if (sentence := reason(picture))), None)

    def may_claim(self) -> bool:
        """Whether asking for a job makes sense: an open standing, and an answered heartbeat not long ago."""
        fresh = time.monotonic() - self.contact_at < 2.5 * self.intervals.heartbeat_seconds
        return self.contact_at > 0 and fresh and self.standing == "open" and self.paused_reason() is None

    def _holds(self, picture: Picture) -> list[JsonObject] | None:
        if not self.inventory_done and picture.found is not None and self._engine_needed:
            # the engine answers again, but the journal's jobs are not in hand yet: a list would be too short
            return None
        return self._holdings.holds(picture.found)

    def _take(self, desired: Desired, asked_at: float) -> None:
        told = (desired.gateway, desired.gateway_detail)
        if desired.gateway is not None and told != (self.gateway, self.gateway_detail):
            logger.info(
                "gateway seen by the control plane",
                extra={"action": "gateway_state", "state": desired.gateway, "why": desired.gateway_detail},
            )
        if desired.standing != self.standing:
            logger.info("standing changed", extra={"action": "standing", "standing": desired.standing})
        self.intervals, self.standing, self.gateway = desired.intervals, desired.standing, desired.gateway
        self.gateway_called, self.gateway_detail = desired.gateway_url, desired.gateway_detail
        self.instructions = {one.lease: one for one in desired.leases}
        self.contact_at = time.monotonic()
        self._holdings.obey(desired.leases, asked_at=asked_at)
        self.changed()
