"""The calls that workers repeat, past Django's asynchronous handler: the same views, in a few threads of their own.

Under ASGI Django passes every request through each middleware in a thread hop of its own, to and fro, and a worker's
call needs none of sessions, languages, messages or CSRF. A thousand workers make 67 calls per second: here each is one
hop, and so few of them hold a database connection at a time that a busy fleet leaves the others of the pool to people.
Signs of life have threads of their own: claims and reports that wait for a lock never hold them up.
"""

from __future__ import annotations

import asyncio
import io
import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.core import signals
from django.core.handlers.asgi import ASGIRequest
from django.core.handlers.exception import convert_exception_to_response
from django.http import HttpRequest
from django.http.response import HttpResponseBase, JsonResponse
from django.middleware.common import CommonMiddleware
from django.middleware.security import SecurityMiddleware
from django.urls import resolve

PATHS = r"^/api/v1/workers/(?:register|[0-9a-fA-F-]{36}/(?:heartbeat|jobs/[a-z0-9/-]+))$"
SIGNS_OF_LIFE = re.compile(r"/(?:register|heartbeat|lease)$")
# Together well below the pool's 16 connections.
LIFE_THREADS, OTHER_THREADS = 4, 6
# Whoever waited so long for a thread has hung up, or is about to: doing the work now would only delay the others.
PATIENCE_SECONDS = 8.0
RETRY_AFTER_SECONDS = 5

_life = ThreadPoolExecutor(LIFE_THREADS, thread_name_prefix="worker-life")
_others = ThreadPoolExecutor(OTHER_THREADS, thread_name_prefix="worker-call")


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Answer one call. Bodies are bounded by who stands in front of this."""
    body = await _body(receive)
    if body is None:
        return
    threads = _life if SIGNS_OF_LIFE.search(scope["path"]) else _others
    arrived = time.monotonic()
    answer = await asyncio.get_running_loop().run_in_executor(threads, _answer, scope, body, arrived)
    status, headers, content = answer
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


async def _body(receive: Any) -> bytes | None:
    """The whole body, or None where the caller hung up before its end."""
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


def _answer(scope: Any, body: bytes, arrived: float) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """In a thread: status, headers, content. Begins and ends as Django's handlers do, which frees the connection."""
    signals.request_started.send(sender=application, scope=scope)
    request = ASGIRequest(scope, io.BytesIO(body))
    request.META["CONTENT_LENGTH"] = str(len(body))  # known now, also of a body that came in chunks
    late = time.monotonic() - arrived > PATIENCE_SECONDS
    response = _too_busy() if late else _handle(request)
    try:
        headers = [(name.encode("ascii"), value.encode("latin-1")) for name, value in response.items()]
        return response.status_code, headers, b"".join(response)
    finally:
        response.close()  # sends request_finished


def _too_busy() -> HttpResponseBase:
    answer = JsonResponse({"code": "unavailable", "detail": "The control plane is busy; ask again."}, status=503)
    answer["Retry-After"] = str(RETRY_AFTER_SECONDS)
    answer["Content-Length"] = str(len(answer.content))
    return answer


def _view(request: HttpRequest) -> HttpResponseBase:
    match = resolve(request.path_info)
    response: Any = match.func(request, *match.args, **match.kwargs)
    rendered: HttpResponseBase = response.render() if hasattr(response, "render") else response
    return rendered


def _handle_with(*middleware: Any) -> Any:
    handler = convert_exception_to_response(_view)
    for layer in middleware:
        handler = convert_exception_to_response(layer(handler))
    return handler


# Host names, lengths and nosniff. What else every page of ours has is for browsers.
_handle = _handle_with(CommonMiddleware, SecurityMiddleware)
