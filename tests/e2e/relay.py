"""The network between a worker and the control plane, which a test can freeze, cut, spoil, and make lose an answer."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

LOOK_SECONDS = 0.02
BYTES = 65536


class Relay:
    """A TCP relay to `port` of this machine. Open at first; all methods may be called from any thread."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._frozen = threading.Event()
        self._cut = threading.Event()
        self._closing = threading.Event()
        self._lost = b""
        self._lost_times = 0
        self._delay = self._drop = 0.0
        self._random = random.Random(22)
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        threading.Thread(target=self._accept, name="relay", daemon=True).start()

    @property
    def url(self) -> str:
        """The control plane's address on this side."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def freeze(self) -> None:
        """Let nothing through any more and say nothing: no reset, no refusal. New connections are taken and starve."""
        self._frozen.set()

    def cut(self) -> None:
        """Close what is open, and whatever comes, at once."""
        self._cut.set()
        self._close_all()

    def heal(self) -> None:
        """Open again. What waited in a frozen connection arrives late, as packets do."""
        self._cut.clear()
        self._frozen.clear()

    @contextmanager
    def poor(self, *, delay_seconds: float, drop: float) -> Iterator[None]:
        """Deliver each piece late by up to `delay_seconds`, and let this share of connections go silent for good."""
        self._delay, self._drop = delay_seconds, drop
        try:
            yield
        finally:
            self._delay = self._drop = 0.0
            self._close_all()  # those that went silent

    def lose_answers(self, path: str, *, times: int) -> None:
        """Deliver the next requests to this path, and close their connections instead of bringing the answers."""
        with self._lock:
            self._lost, self._lost_times = path.encode(), times

    @property
    def answers_to_lose(self) -> int:
        return self._lost_times

    def close(self) -> None:
        self._closing.set()
        self._listener.close()
        self._close_all()

    # --- the pumps ------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=[caller], name="relayed", daemon=True).start()

    def _serve(self, caller: socket.socket) -> None:
        with contextlib.suppress(OSError), caller:
            self._wait_while_frozen()
            if self._cut.is_set():
                return
            with socket.create_connection(("127.0.0.1", self._port)) as server:
                ends = {caller, server}
                with self._lock:
                    self._sockets |= ends
                mute = threading.Event()
                back = threading.Thread(target=self._pump, args=[server, caller, mute, False], daemon=True)
                back.start()
                self._pump(caller, server, mute, True)
                back.join()
                with self._lock:
                    self._sockets -= ends

    def _pump(self, source: socket.socket, sink: socket.socket, mute: threading.Event, asks: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(BYTES):
                self._wait_while_frozen()
                if asks and self._loses(data):
                    mute.set()
                if not asks and mute.is_set():
                    break
                if not self._delivers():
                    continue
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _loses(self, data: bytes) -> bool:
        with self._lock:
            if self._lost_times and self._lost in data:
                self._lost_times -= 1
                return True
        return False

    def _delivers(self) -> bool:
        """Wait as the line does now; whether the piece arrives. One that does not leaves its connection silent."""
        if self._delay:
            time.sleep(self._random.uniform(0, self._delay))
        return self._random.random() >= self._drop

    def _wait_while_frozen(self) -> None:
        while self._frozen.is_set() and not self._closing.is_set():
            time.sleep(LOOK_SECONDS)

    def _close_all(self) -> None:
        with self._lock:
            for end in self._sockets:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
