"""Carry an app's output into its log, in a thread of its own, until the output ends."""

from __future__ import annotations

import logging
import re
import threading

from gpu_worker.errors import EngineError
from gpu_worker.executor import Remark, Runtime
from gpu_worker.log_shipping import LogStream

logger = logging.getLogger(__name__)

CONTROLS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f]")
LAST_WORDS_SECONDS = 20.0  # an engine hands the rest over within this, or never
NOT_READ = "\n… the end of the app's output could not be read …\n".encode()


class OutputPump:
    def __init__(self, runtime: Runtime, stream: LogStream, *, after: str | None) -> None:
        """*after*: the position in the app's output from which the log goes on."""
        self._runtime, self._stream = runtime, stream
        self.position = after
        """How far the output is read."""
        self._over, self._given_up = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"output-{runtime.reference}", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Wait for the last output of an app that has ended. What could not be had of it is told in the log."""
        self._over.set()
        self._thread.join(LAST_WORDS_SECONDS)
        if self._thread.is_alive():
            self._given_up.set()
            self._stream.remark(NOT_READ)

    def last_line(self) -> str | None:
        """The last line that says something, as a terminal would show it; masked."""
        for line in reversed(self._stream.last.splitlines()):
            if shown := CONTROLS.sub("", line).strip():
                return shown
        return None

    def _run(self) -> None:
        try:
            for data, position in self._runtime.follow(self.position, over=self._over, stop=self._given_up):
                take = self._stream.remark if isinstance(data, Remark) else self._stream.write
                take(data, position=position)
                self.position = position
        except EngineError as problem:
            logger.info(
                "output ended",
                extra={"action": "output_ended", "app": self._runtime.reference, "problem": str(problem)},
            )
        self._stream.end()
