"""The least that an ASGI proxy can be: aiohttp in, aiohttp out, no rule about anything. What ours is held against.

Run by `BARE_PROXY_TO=http://127.0.0.1:80 uvicorn benchmarks.proxying.bare_proxy:application`.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
from yarl import URL

TO = os.environ.get("BARE_PROXY_TO", "")
DROPPED = frozenset({b"host", b"connection", b"transfer-encoding", b"keep-alive"})
Message = dict[str, Any]
_sessions: list[aiohttp.ClientSession] = []


async def application(
    scope: dict[str, Any], receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    """Serve one request, or the server's life."""
    if scope["type"] == "lifespan":
        await _live(receive, send)
        return
    headers = [(n.decode("latin-1"), v.decode("latin-1")) for n, v in scope["headers"] if n not in DROPPED]
    has_body = any(name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"])
    url = URL(TO + scope["raw_path"].decode("latin-1"), encoded=True)
    async with _sessions[0].request(
        scope["method"], url, headers=headers, data=_body(receive) if has_body else None, allow_redirects=False
    ) as answer:
        fields = [(name.lower(), value) for name, value in answer.raw_headers if name.lower() not in DROPPED]
        await send({"type": "http.response.start", "status": answer.status, "headers": fields})
        async for piece in answer.content.iter_any():
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def _body(receive: Callable[[], Awaitable[Message]]) -> AsyncIterator[bytes]:
    while True:
        message = await receive()
        yield message.get("body", b"")
        if not message.get("more_body"):
            return


async def _live(receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]) -> None:
    await receive()
    connector = aiohttp.TCPConnector(limit=0)
    _sessions.append(
        aiohttp.ClientSession(connector=connector, auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar())
    )
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await _sessions.pop().close()
    await send({"type": "lifespan.shutdown.complete"})
