"""What this worker has in hand: one runner per lease."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from gpu_worker.executor import Found
from gpu_worker.protocol import Hold, Instruction, JsonObject
from gpu_worker.runner import JobRunner

# of containers, as holds say it
_STATE_OF = {"running": "running", "paused": "running", "created": "starting", "exited": "exited", "gone": "exited"}


class Holdings:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runners: dict[str, JobRunner] = {}

    def add(self, runner: JobRunner) -> bool:
        """Take a runner in; False when its lease is here already (a repeated claim answer)."""
        with self._lock:
            if runner.facts.lease in self._runners:
                return False
            self._runners[runner.facts.lease] = runner
            return True

    def drop(self, runner: JobRunner) -> None:
        with self._lock:
            self._runners.pop(runner.facts.lease, None)

    def all(self) -> list[JobRunner]:
        with self._lock:
            return list(self._runners.values())

    def image_ids(self) -> set[str]:
        """The images that jobs run from or are about to."""
        return {image for runner in self.all() if (image := runner.hold().image_id) is not None}

    def obey(self, leases: Sequence[Instruction], *, asked_at: float) -> None:
        """Pass the server's desired list on. What is not here needs nothing done."""
        with self._lock:
            known = [(self._runners[one.lease], one) for one in leases if one.lease in self._runners]
        for runner, instruction in known:
            runner.obey(instruction, asked_at=asked_at)

    def free_slots(self, *, max_gpu: int, max_cpu: int) -> tuple[int, int]:
        """Free places for GPU and CPU jobs."""
        kinds = [runner.facts.kind for runner in self.all() if runner.occupies_slot]
        return max(0, max_gpu - kinds.count("gpu")), max(0, max_cpu - kinds.count("cpu"))

    def holds(self, found: Sequence[Found] | None) -> list[JsonObject] | None:
        """All leases in any phase, joined with what the engine has in any state; None when it did not answer.

        Read in this order: a container is made after its runner is here and removed before its runner leaves, so a
        lease is missing only when nothing of it is left.
        """
        if found is None:
            return None
        holds = {runner.facts.lease: runner.hold() for runner in self.all()}
        for one in found:
            holds.setdefault(one.facts.lease, _hold_of(one))
        return [hold.wire() for hold in holds.values()]


def _hold_of(one: Found) -> Hold:
    """Of a container that no runner has in hand."""
    return Hold(
        lease=one.facts.lease,
        state=_STATE_OF.get(one.status, "exited"),
        image_id=one.image_id,
        container=one.reference,
        kind=one.facts.kind,
        gpus=one.facts.gpus,
    )
