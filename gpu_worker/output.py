"""Carry an app's output into its log, in a thread of its own, until the output ends."""

from __future__ import annotations

import logging
import threading

from gpu_worker.errors import EngineError
from gpu_worker.executor import Runtime
from gpu_worker.log_shipping import LogStream, Mark

logger = logging.getLogger(__name__)

LAST_WORDS_SECONDS = 5.0  # an engine hands the rest over within this, or never


class OutputPump:
    def __init__(self, runtime: Runtime, stream: LogStream, after: Mark | None) -> None:
        """*after*: where the log goes on after a restart of the worker."""
        self._runtime, self._stream, self._after = runtime, stream, after
        self._thread = threading.Thread(target=self._run, name=f"output-{runtime.reference}", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Wait for the last output of an app that has ended."""
        self._thread.join(LAST_WORDS_SECONDS)

    def _run(self) -> None:
        never, after = threading.Event(), self._after.position if self._after else None
        try:
            for data, position in self._runtime.follow(after, never):
                self._stream.write(data, position=position)
        except EngineError as problem:
            logger.info(
                "output ended",
                extra={"action": "output_ended", "app": self._runtime.reference, "problem": str(problem)},
            )
        self._stream.end()
