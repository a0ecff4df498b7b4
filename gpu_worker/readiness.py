"""Does the app answer? Asked by us, from outside its container, as the gateway will."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Sequence

from gpu_worker.open_files import used_up

CONNECT_SECONDS = 1.0
ANSWER_SECONDS = 5.0
NOT_FOUND = 404


def answers_tcp(address: tuple[str, int]) -> bool:
    """Whether something accepts connections there. Raises OSError where no connection can be made for want of files."""
    try:
        with socket.create_connection(address, CONNECT_SECONDS):
            return True
    except OSError as problem:
        if used_up(problem):
            raise
        return False


class Probe:
    """Asks an app whether it is up, and notes on the way whether it lives at its root or below its prefix."""

    def __init__(self, base_path: str) -> None:
        """*base_path*: the prefix, with its slashes; "/" for none."""
        self._base_path = base_path
        self.prefix: str | None = None
        """"keep": it answers below its prefix only; "strip": at its root; None: not known yet."""
        self.instead = ""
        """What it did when it was last asked, as a part of a sentence, where it took the connection and is not up."""

    def answers(self, address: tuple[str, int]) -> bool:
        """Whether ``GET /`` brings any status below 500: a login page or a 404 is an app that is up."""
        self.instead = ""
        if not answers_tcp(address):
            return False
        status = _status(address, "/")
        if status is None or status >= 500:
            self.instead = f"answered GET / with status {status}" if status else "gave no HTTP answer to GET /"
            return False
        if self._base_path != "/":
            self.prefix = "keep" if status == NOT_FOUND and self._is_below(address) else "strip"
        return True

    def _is_below(self, address: tuple[str, int]) -> bool:
        status = _status(address, self._base_path)
        return status is not None and status < 400


def _status(address: tuple[str, int], path: str) -> int | None:
    """What ``GET`` is answered with; None: nothing that is HTTP, or nothing in time. Redirects are not followed."""
    connection = http.client.HTTPConnection(*address, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", path, headers={"User-Agent": "openface-readiness"})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException) as problem:
        if used_up(problem):
            raise
        return None
    finally:
        connection.close()


def unanswered(port: int, seconds: float, listening: Sequence[str] | None, *, instead: str = "") -> str:
    """The sentence for an app that never was up: what it did *instead*, or what it listens on where that is known."""
    if instead:
        return f"The app takes connections on port {port}, but {instead} for {seconds:.0f} s."
    sentence = f"The app did not answer on port {port} within {seconds:.0f} s"
    if listening is None:
        return f"{sentence}."
    sockets = [one for one in listening if not one.startswith("127.0.0.11:")]  # Docker's own resolver
    if not sockets:
        return f"{sentence}; it listens nowhere."
    return f"{sentence}: it listens on {', '.join(sockets)}, expected 0.0.0.0:{port}."
