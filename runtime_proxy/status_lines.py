"""Status lines, of odd codes too: an app's status passes as it is."""

from __future__ import annotations

from functools import lru_cache
from http import HTTPStatus


@lru_cache(maxsize=1024)
def status_line(status: int) -> bytes:
    """Return `HTTP/1.1 200 OK` with its line end; without words where a code has none."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return f"HTTP/1.1 {status} {phrase}\r\n".encode("ascii")
