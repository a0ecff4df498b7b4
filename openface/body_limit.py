"""Refuses bodies that are too large before Django reads them.

Django answers an oversized body with 400, and by then the server has taken all of it. Here the declared length is
checked before the first byte, and an undeclared one is counted as it comes. Before that daphne has taken the body; it
keeps none that is longer than all these limits (bounded_daphne.py).
"""

from __future__ import annotations

import json
import re
from typing import Any

from asgiref.typing import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, HTTPScope, Scope

KIB = 1024
# Events carry logs; everything else is small. Portal forms and the admin are bounded as well.
# A redirect of /run carries its body to the data plane, which takes any size; here nobody reads it.
UNLIMITED = re.compile(r"^/run/")
LIMITS = ((re.compile(r"^/api/v1/workers/[^/]+/jobs/[^/]+/events/?$"), 1024 * KIB),)
DEFAULT_LIMIT = 256 * KIB
LARGEST = max(DEFAULT_LIMIT, *(limit for _, limit in LIMITS))  # beyond it no body is kept anywhere


class BodyLimit:
    """ASGI middleware: 413 with a code for bodies above the path's limit."""

    def __init__(self, application: ASGI3Application) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        if scope["type"] != "http" or UNLIMITED.match(scope["path"]):
            await self._application(scope, receive, send)
            return
        limit = limit_for(scope["path"])
        declared = _declared_length(scope)
        if declared is not None and declared > limit:
            await _refuse(send, limit)
            return
        counted = _Counted(receive, limit)
        try:
            await self._application(scope, counted, send)
        except _TooLarge:
            await _refuse(send, limit)


class _TooLarge(Exception):
    """More bytes came than the path allows."""


class _Counted:
    """`receive`, until too much was received."""

    def __init__(self, receive: ASGIReceiveCallable, limit: int) -> None:
        self._receive = receive
        self._left = limit

    async def __call__(self) -> Any:
        message = await self._receive()
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            if self._left < 0:
                raise _TooLarge
        return message


def limit_for(path: str) -> int:
    """The largest body in bytes that this path takes."""
    return next((limit for pattern, limit in LIMITS if pattern.match(path)), DEFAULT_LIMIT)


def _declared_length(scope: HTTPScope) -> int | None:
    for name, value in scope["headers"]:
        if name.lower() == b"content-length":
            try:
                return int(value)
            except ValueError:
                return None
    return None


async def _refuse(send: ASGISendCallable, limit: int) -> None:
    body = json.dumps({"code": "too_large", "detail": f"The body is larger than {limit // KIB} KiB."}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 413, "headers": headers, "trailers": False})
    await send({"type": "http.response.body", "body": body, "more_body": False})
