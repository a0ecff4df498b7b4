"""A unix socket in front of the engine's, that a test can cut: an engine that does not answer, without harm to it."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path
from typing import Self

ENGINE_SOCKET = "/var/run/docker.sock"


class EngineRelay:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(64)
        self._open = True
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def cut(self) -> None:
        """From now on connections are closed at once, the present ones too."""
        self._open = False
        for pair in self._pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        self._open = True

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if not self._open:
                client.close()
                continue
            engine = socket.socket(socket.AF_UNIX)
            engine.connect(ENGINE_SOCKET)
            self._pairs.append((client, engine))
            threads = [
                threading.Thread(target=self._copy, args=ends, daemon=True)
                for ends in ((client, engine), (engine, client))
            ]
            for thread in threads:
                thread.start()
            threading.Thread(target=self._close, args=(threads, client, engine), daemon=True).start()

    @staticmethod
    def _copy(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    @staticmethod
    def _close(threads: list[threading.Thread], *ends: socket.socket) -> None:
        for thread in threads:
            thread.join()
        for end in ends:
            end.close()
