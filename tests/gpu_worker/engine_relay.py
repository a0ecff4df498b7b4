"""A unix socket in front of the engine's: a test can cut it (an engine that does not answer, without harm to it), or
act at the very moment in which a certain request passes."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

ENGINE_SOCKET = "/var/run/docker.sock"


@dataclass(frozen=True)
class Trap:
    """Springs once: at the first request whose line matches *request*, before it or with its answer."""

    request: re.Pattern[bytes]
    answered: bool
    act: Callable[[], None]


class EngineRelay:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(64)
        self._open = True
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._trap: Trap | None = None
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

    def trap(self, request: str, act: Callable[[], None], *, answered: bool = False) -> None:
        """Do *act* when a request matches (``POST .*/build``): before the engine hears of it, and then it never does;
        or, *answered*, when the engine has done it and the answer is on its way."""
        self._trap = Trap(re.compile(request.encode()), answered, act)

    def _sprung(self, data: bytes) -> Trap | None:
        trap = self._trap
        if trap is None or not trap.request.match(data.partition(b"\r\n")[0]):
            return None
        self._trap = None
        return trap

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
            waiting: list[Trap] = []
            threads = [
                threading.Thread(target=self._ask, args=(client, engine, waiting), daemon=True),
                threading.Thread(target=self._answer, args=(engine, client, waiting), daemon=True),
            ]
            for thread in threads:
                thread.start()
            threading.Thread(target=self._close, args=(threads, client, engine), daemon=True).start()

    def _ask(self, client: socket.socket, engine: socket.socket, waiting: list[Trap]) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                trap = self._sprung(data)
                if trap is not None and not trap.answered:
                    trap.act()
                    break
                if trap is not None:
                    waiting.append(trap)
                engine.sendall(data)
            engine.shutdown(socket.SHUT_WR)

    def _answer(self, engine: socket.socket, client: socket.socket, waiting: list[Trap]) -> None:
        with contextlib.suppress(OSError):
            while data := engine.recv(65536):
                while waiting:
                    waiting.pop().act()
                client.sendall(data)
            client.shutdown(socket.SHUT_WR)

    @staticmethod
    def _close(threads: list[threading.Thread], *ends: socket.socket) -> None:
        for thread in threads:
            thread.join()
        for end in ends:
            end.close()
