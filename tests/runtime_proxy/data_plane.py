"""The real data plane for tests: uvicorn with the product's options, in a thread, on a free port.

In this process, so that a test can count its queries; its LISTEN connection is the test's own and ends with it.
"""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
import uvicorn
from asgiref.typing import ASGI3Application
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from jobs import notices
from openface import data_server

DEADLINE = 20.0  # seconds; a guard against hanging


@dataclass
class Answer:
    """A whole answer; `headers` as they came."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name]

    def one(self, name: str) -> str | None:
        values = self.all(name)
        assert len(values) <= 1, f"{name} came {len(values)} times"
        return values[0] if values else None


@dataclass
class DataPlane:
    """A running server."""

    port: int
    stop: Callable[[], None] = lambda: None  # begin to stop it; the fixture waits for its end

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def get(self, path: str, *, method: str = "GET", body: bytes | None = None, **headers: str) -> Answer:
        """Send one request. Header names are written with `_` for `-`."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        try:
            fields = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body=body, headers=fields)
            response = connection.getresponse()
            return Answer(response.status, response.getheaders(), response.read())
        finally:
            connection.close()

    def navigate(self, path: str, **headers: str) -> Answer:
        """Ask as a browser does for a page."""
        return self.get(path, Accept="text/html,application/xhtml+xml", Sec_Fetch_Mode="navigate", **headers)  # type: ignore[arg-type]  # of headers only

    def connect(self) -> socket.socket:
        """A raw connection, for tests that spell their requests themselves."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE)

    def raw(self, request: bytes) -> bytes:
        """Send these bytes and return everything that comes until the server closes."""
        with self.connect() as connection:
            connection.sendall(request)
            pieces = []
            while piece := connection.recv(65536):
                pieces.append(piece)
            return b"".join(pieces)


def refused_handshake(data_plane: DataPlane, path: str, **headers: str) -> int:
    """Try to open a WebSocket; return the status of the refusal."""
    with pytest.raises(InvalidStatus) as refusal:
        connect(f"ws://{data_plane.host}{path}", additional_headers=headers, proxy=None)
    return refusal.value.response.status_code


@contextmanager
def serving(application: ASGI3Application, **others: Any) -> Iterator[DataPlane]:
    """Serve with the product's options; `others` are different ones."""
    options = {"port": 0, "log_config": None, "timeout_graceful_shutdown": 2, **others}
    server = uvicorn.Server(data_server.config(application, **options))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started)

    def stop() -> None:
        server.should_exit = True

    try:
        yield DataPlane(server.servers[0].sockets[0].getsockname()[1], stop)
    finally:
        stop()
        thread.join(DEADLINE)
        assert not thread.is_alive(), "the data plane does not stop"


@contextmanager
def listening(database_url: str) -> Iterator[None]:
    """Feed the notices of the test database to this process, as the product's listener does."""
    over = threading.Event()
    connection = psycopg.connect(database_url, autocommit=True)
    connection.execute(f"LISTEN {notices.CHANNEL}")

    def listen() -> None:
        while not over.is_set():
            for notify in connection.notifies(timeout=0.05):
                notices.deliver(notify.payload)

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(DEADLINE)
        connection.close()


def until(condition: Callable[[], object], *, seconds: float = DEADLINE) -> None:
    """Wait until the condition holds; fail when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def settled(value: Callable[[], int]) -> int:
    """Return the value once it is above zero and has stood still for a while."""
    seen, still = -1, 0

    def stands_still() -> bool:
        nonlocal seen, still
        now = value()
        still = still + 1 if now == seen else 0
        seen = now
        return still >= 30 and now > 0

    until(stands_still)
    return seen
