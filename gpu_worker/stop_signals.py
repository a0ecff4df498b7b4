"""SIGTERM and SIGINT, heard in a thread of their own.

A handler runs in the middle of whatever the main thread does, under whatever lock it holds there: one that sets an
event, or writes to a log, may wait for a lock of its own frame, for ever. So nothing is done in it; the interpreter
writes each signal to a socket, and a thread reads that.
"""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable

STOPPING = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Calls *hear* with the number of each signal, in a thread. The newest object of a process hears them."""

    def __init__(self, hear: Callable[[int], None]) -> None:
        """Call it in the main thread."""
        self._hear = hear
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        threading.Thread(target=self._listen, name="stop-signals", daemon=True).start()
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for number in STOPPING:
            signal.signal(number, lambda *_: None)  # the interpreter writes only signals that have a handler

    def _listen(self) -> None:
        while numbers := self._reader.recv(64):
            for number in numbers:
                if number in STOPPING:
                    self._hear(number)
