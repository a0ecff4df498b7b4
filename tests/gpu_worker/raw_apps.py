"""Apps and clients of the gateway that say exactly the bytes they are told to."""

from __future__ import annotations

import contextlib
import socket
import threading
import uuid
from collections.abc import Callable, Iterator

from gpu_worker.gateway import Gateway

LEASE = "7be19a44-0c5d-4d2b-bf13-98e6a1c0d572"
TOKEN = "ab" * 32
SECRET = "A" * 43
WORKER_ID = str(uuid.UUID(int=7))
HANG_SECONDS = 10

Serve = Callable[[socket.socket], None]


class App:
    """A TCP server whose connections are each handled by *serve* in a thread."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self.connections = self.ended = 0
        self._counting = threading.Lock()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            connection.settimeout(HANG_SECONDS)
            threading.Thread(target=self._run, args=(connection,), daemon=True).start()

    def _run(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            self._serve(connection)
        with self._counting:
            self.ended += 1

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits in accept
        self._thread.join()
        self._listener.close()


def read_until(connection: socket.socket, mark: bytes) -> bytes:
    data = b""
    while mark not in data:
        more = connection.recv(65536)
        if not more:
            return data
        data += more
    return data


def read_all(connection: socket.socket) -> bytes:
    data = b""
    while more := connection.recv(65536):
        data += more
    return data


def read_what_comes(connection: socket.socket) -> bytes:
    """All that arrives until the other side closes or breaks the connection."""
    try:
        return read_all(connection)
    except ConnectionResetError:
        return b""


@contextlib.contextmanager
def standing_still(gateway: Gateway) -> Iterator[None]:
    """Keep the gateway's loop from running: what happens meanwhile comes to be known in one turn of it."""
    stands, go_on = threading.Event(), threading.Event()

    def stand() -> None:
        stands.set()
        go_on.wait(HANG_SECONDS)

    gateway._loop.call_soon_threadsafe(stand)
    assert stands.wait(HANG_SECONDS)
    yield
    go_on.set()


def reset(connection: socket.socket) -> None:
    """End a connection by a reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    connection.close()


def connect(gateway: Gateway) -> socket.socket:
    return socket.create_connection(("127.0.0.1", gateway.port), HANG_SECONDS)


def request(target: str = "/", *, method: str = "GET", head: str = "", body: bytes = b"") -> bytes:
    first = f"{method} /lease/{LEASE}{target} HTTP/1.1\r\nHost: space.example:8091\r\n"
    lines = f"{first}X-OpenFace-Runtime: {TOKEN}\r\n{head}\r\n"
    return lines.encode("latin-1") + body


def seen_by_app(gateway: Gateway, app: Callable[[Serve], App], sent: bytes) -> bytes:
    """What arrives at the app of what a client sends."""
    seen: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        seen.append(read_until(connection, b"\r\n\r\n"))
        connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")

    app(serve)
    with connect(gateway) as client:
        client.sendall(sent)
        assert read_until(client, b"\r\n\r\n").startswith(b"HTTP/1.1 204 No Content\r\n")
    return seen[0]


def answer_of(gateway: Gateway, app: Callable[[Serve], App], answer: bytes, *, sent: bytes = request()) -> bytes:
    """What arrives at a client of what the app answers (and then closes)."""

    def serve(connection: socket.socket) -> None:
        read_until(connection, b"\r\n\r\n")
        connection.sendall(answer)

    app(serve)
    with connect(gateway) as client:
        client.sendall(sent)
        client.settimeout(HANG_SECONDS)
        return read_until_closed_or(client, answer)


def read_until_closed_or(client: socket.socket, answer: bytes) -> bytes:
    body = answer.partition(b"\r\n\r\n")[2]
    data = read_until(client, b"\r\n\r\n")
    while not data.endswith(body):
        more = client.recv(65536)
        if not more:
            return data
        data += more
    return data


def echo_of_target(connection: socket.socket) -> None:
    """Answer each request with its target, for as long as somebody asks."""
    connection.settimeout(None)
    data = b""
    while True:
        while b"\r\n\r\n" not in data:
            more = connection.recv(65536)
            if not more:
                return
            data += more
        head, _, data = data.partition(b"\r\n\r\n")
        target = head.split(b" ")[1]
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(target) + target)


HANDSHAKE = request(head="Connection: Upgrade\r\nUpgrade: websocket\r\n")
UPGRADED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
