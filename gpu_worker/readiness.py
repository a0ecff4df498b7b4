"""Does the app answer? Asked by us, from outside its container, as the gateway will."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Sequence

CONNECT_SECONDS = 1.0
ANSWER_SECONDS = 5.0


def answers_tcp(address: tuple[str, int]) -> bool:
    """Whether something accepts connections there."""
    try:
        with socket.create_connection(address, CONNECT_SECONDS):
            return True
    except OSError:
        return False


def answers_http(address: tuple[str, int]) -> bool:
    """Whether ``GET /`` brings any status below 500: a login page or a 404 is an app that is up."""
    if not answers_tcp(address):
        return False
    connection = http.client.HTTPConnection(*address, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", "/", headers={"User-Agent": "openface-readiness"})
        return connection.getresponse().status < 500
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def unanswered(port: int, seconds: float, listening: Sequence[str] | None) -> str:
    """The sentence for an app that never answered, with what it listens on instead where that is known."""
    sentence = f"The app did not answer on port {port} within {seconds:.0f} s"
    if listening is None:
        return f"{sentence}."
    sockets = [one for one in listening if not one.startswith("127.0.0.11:")]  # Docker's own resolver
    if not sockets:
        return f"{sentence}; it listens nowhere."
    return f"{sentence}: it listens on {', '.join(sockets)}, expected 0.0.0.0:{port}."
