"""What the server says, in its answer to register, of a lease that a former process of this worker left."""

from __future__ import annotations

import threading

from gpu_worker.protocol import Instruction


class Confirmation:
    """Thread-safe."""

    def __init__(self) -> None:
        self._there = threading.Event()
        self._instruction: Instruction | None = None

    def give(self, instruction: Instruction | None) -> None:
        """Register was answered; None: it did not mention the lease."""
        self._instruction = instruction
        self._there.set()

    def wait(self, seconds: float) -> bool:
        """Whether that answer is there, at the latest after *seconds*."""
        return self._there.wait(seconds)

    @property
    def instruction(self) -> Instruction | None:
        """What was given."""
        return self._instruction
