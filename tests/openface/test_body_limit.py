"""Bodies that are too large are refused before Django sees them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from openface.body_limit import DEFAULT_LIMIT, BodyLimit, limit_for

EVENTS = "/api/v1/workers/0d1f6e80-0000-4000-8000-000000000000/jobs/0d1f6e80-0000-4000-8000-000000000001/events"


def call(path: str, chunks: list[bytes], *, declared: int | None = None) -> tuple[int, dict[str, Any], int]:
    """Send chunks to an application that reads them all; return status, JSON body, and how many bytes it read."""
    read = 0

    async def application(scope: Any, receive: Any, send: Any) -> None:
        nonlocal read
        more = True
        while more:
            message = await receive()
            read += len(message["body"])
            more = message["more_body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    sent: list[dict[str, Any]] = []
    left = list(chunks)

    async def receive() -> dict[str, Any]:
        body = left.pop(0)
        return {"type": "http.request", "body": body, "more_body": bool(left)}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [] if declared is None else [(b"content-length", str(declared).encode())]
    scope = {"type": "http", "path": path, "headers": headers}
    asyncio.run(BodyLimit(application)(scope, receive, send))  # type: ignore[arg-type]
    return sent[0]["status"], json.loads(sent[1]["body"]), read


def test_a_declared_length_above_the_limit_is_refused_unread() -> None:
    status, body, read = call("/api/v1/workers/enroll", [b"x"], declared=DEFAULT_LIMIT + 1)
    assert (status, body["code"], read) == (413, "too_large", 0)


def test_an_undeclared_body_is_refused_when_it_grows_too_large() -> None:
    status, body, read = call("/login/", [b"x" * DEFAULT_LIMIT, b"x"])
    assert (status, body["code"], read) == (413, "too_large", DEFAULT_LIMIT)


@pytest.mark.parametrize("chunks", [[b""], [b"x" * DEFAULT_LIMIT], [b"x" * 1000] * 200])
def test_a_body_within_the_limit_passes_whole(chunks: list[bytes]) -> None:
    status, _, read = call("/login/", chunks)
    assert (status, read) == (200, sum(map(len, chunks)))


def test_events_may_carry_logs() -> None:
    assert limit_for(EVENTS) == 1024 * 1024
    assert limit_for(EVENTS.removesuffix("events") + "lease") == DEFAULT_LIMIT


def test_a_body_on_its_way_to_a_redirect_of_run_is_not_ours_to_refuse() -> None:
    status, _, _ = call("/run/owner/repo/upload", [b"x"], declared=10**10)
    assert status == 200
