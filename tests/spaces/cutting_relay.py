"""A way to a server that breaks off in the middle of long answers."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

PIECE = 16 * 1024  # bytes


class CuttingRelay:
    """Passes connections on to *server*, and closes each one after *bytes_each* of answer, so many *times* in all."""

    def __init__(self, server: str, *, bytes_each: int, times: int) -> None:
        self._port = urlsplit(server).port or 0
        self._bytes_each, self._left = bytes_each, times
        self._lock = threading.Lock()
        self.cuts = 0
        self.passed = 0
        """Bytes of answers that went through."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._port))
            threading.Thread(target=self._ask, args=(caller, server), daemon=True).start()
            threading.Thread(target=self._answer, args=(server, caller), daemon=True).start()

    def _ask(self, caller: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := caller.recv(PIECE):
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)

    def _answer(self, server: socket.socket, caller: socket.socket) -> None:
        passed = 0
        with contextlib.suppress(OSError), server, caller:
            while data := server.recv(PIECE):
                caller.sendall(data)
                passed += len(data)
                with self._lock:
                    self.passed += len(data)
                    if passed >= self._bytes_each and self._left > 0:
                        self._left -= 1
                        self.cuts += 1
                        break
            for end in (server, caller):
                end.shutdown(socket.SHUT_RDWR)
