"""Answers tell the time of this control plane: daphne adds no `Date`, and a worker's doctor compares its clock with it.

A proxy in front replaces `Date` with its own clock's, so what workers are answered carries a header that none touches.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from typing import Any

from asgiref.typing import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, Scope

FOR_WORKERS = re.compile(r"^/api/v1/")
OWN_HEADER = b"x-openface-time"  # ISO 8601, UTC, whole seconds


class ServerTime:
    """ASGI middleware: `Date` where the application sets none (RFC 9110, 6.6.1), and our own header for workers."""

    def __init__(self, application: ASGI3Application, now: Callable[[], float] = time.time) -> None:
        self._application, self._now = application, now

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        for_workers = FOR_WORKERS.match(scope["path"]) is not None
        await self._application(scope, receive, self._telling(send, for_workers))

    def _telling(self, send: ASGISendCallable, for_workers: bool) -> Callable[[Any], Awaitable[None]]:
        async def told(message: Any) -> None:
            if message["type"] == "http.response.start":
                now = self._now()
                headers = list(message.get("headers", ()))
                if not any(name.lower() == b"date" for name, _ in headers):
                    headers.append((b"date", formatdate(now, usegmt=True).encode()))
                if for_workers:
                    headers.append((OWN_HEADER, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)).encode()))
                message = {**message, "headers": headers}
            await send(message)

        return told
