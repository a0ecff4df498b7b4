"""What a running app meets at its limits and cannot tell itself: asked now and then, and put into its log."""

from __future__ import annotations

import time

from gpu_worker.errors import EngineError
from gpu_worker.executor import Runtime
from gpu_worker.job import Job

EVERY_SECONDS = 4.0  # with the engine's own delay a process killed for memory is told within 10 s


class LimitNews:
    def __init__(self, job: Job, runtime: Runtime) -> None:
        self._job, self._runtime = job, runtime
        self._due = time.monotonic() + EVERY_SECONDS

    def look(self) -> None:
        """Ask if it is time to; an engine that does not answer is asked again later."""
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + EVERY_SECONDS
        try:
            news = self._runtime.news()
        except EngineError:
            return
        for sentence in news:
            self._job.say(sentence)
