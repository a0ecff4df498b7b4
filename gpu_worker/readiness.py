"""Does the app answer? Asked by us, from outside its container, as the gateway will."""

from __future__ import annotations

import http.client
import socket

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
