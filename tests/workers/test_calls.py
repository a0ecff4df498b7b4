"""The calls that workers repeat go past Django's handler, and are answered as it would."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from typing import Any

import pytest
from django.test import Client

from tests.workers.conftest import WireWorker
from workers.api import calls
from workers.models import Worker

pytestmark = pytest.mark.django_db(transaction=True)

Enroll = Any
Message = dict[str, Any]


@pytest.fixture
def worker(enroll: Enroll) -> WireWorker:
    found: WireWorker = enroll("gpu1")
    return found


def call(
    path: str, body: bytes, *, credential: str = "", host: str = "localhost", hang_up: bool = False
) -> tuple[int, dict[str, str], Any]:
    """Send one POST to the application; return status, headers and the JSON answer (None: nothing was answered)."""
    headers = [(b"host", host.encode()), (b"content-type", b"application/json")]
    headers += [(b"authorization", f"Bearer {credential}".encode())] if credential else []
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "headers": headers,
        "client": ("127.0.0.1", 5000),
        "server": ("localhost", 8090),
    }
    half = len(body) // 2
    incoming: list[Message] = [{"type": "http.request", "body": body[:half], "more_body": True}]
    incoming.append(
        {"type": "http.disconnect"} if hang_up else {"type": "http.request", "body": body[half:], "more_body": False}
    )
    sent: list[Message] = []

    async def receive() -> Message:
        return incoming.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(calls.application(scope, receive, send))
    if not sent:
        return 0, {}, None
    start, end = sent
    return start["status"], {k.decode(): v.decode() for k, v in start["headers"]}, json.loads(end["body"] or b"null")


def beat(worker: WireWorker, number: int) -> bytes:
    body = {"session": worker.session, "beat": number, "accepting": True, "gpus": [], "holds": []}
    return json.dumps(body).encode()


def test_a_heartbeat_is_answered_as_django_would(worker: WireWorker) -> None:
    path = f"/api/v1/workers/{worker.id}/heartbeat"

    status, headers, answer = call(path, beat(worker, 1), credential=worker.credential)

    by_django = worker.post(f"{worker.id}/heartbeat", beat(worker, 2))
    assert (status, answer) == (by_django.status_code, by_django.json())
    for name in ("Content-Type", "Content-Length", "X-Content-Type-Options"):
        assert headers[name] == by_django.headers[name]
    assert worker.row.beat == 2


@pytest.mark.parametrize(
    ("path", "body", "credential", "expected"),
    [
        ("/api/v1/workers/{id}/heartbeat", b"{}", "", (401, "credential_invalid")),
        ("/api/v1/workers/{id}/heartbeat", b"{", "{credential}", (400, "malformed")),
        ("/api/v1/workers/{id}/heartbeat", b"{}", "{credential}", (422, "invalid")),
        ("/api/v1/workers/{id}/jobs/nothing/here", b"{}", "{credential}", (404, "not_found")),
    ],
)
def test_so_are_mistakes(
    worker: WireWorker, path: str, body: bytes, credential: str, expected: tuple[int, str]
) -> None:
    credential = credential.format(credential=worker.credential)

    status, headers, answer = call(path.format(id=worker.id), body, credential=credential)

    assert (status, answer["code"]) == expected
    by_django = Client().post(
        path.format(id=worker.id),
        body,
        content_type="application/json",
        headers={"Authorization": f"Bearer {credential}"} if credential else {},
    )
    assert (status, answer) == (by_django.status_code, by_django.json())
    assert headers.get("WWW-Authenticate") == by_django.headers.get("WWW-Authenticate")


def test_whoever_waited_too_long_for_a_thread_is_asked_to_come_again(
    worker: WireWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    Worker.objects.update(last_seen_at=None)
    monkeypatch.setattr(calls, "PATIENCE_SECONDS", -1.0)

    status, headers, answer = call(
        f"/api/v1/workers/{worker.id}/heartbeat", beat(worker, 1), credential=worker.credential
    )

    assert (status, answer["code"]) == (503, "unavailable")
    assert headers["Retry-After"]
    assert worker.row.last_seen_at is None  # nothing was done


def test_whoever_hangs_up_in_the_middle_is_not_heard(worker: WireWorker) -> None:
    path = f"/api/v1/workers/{worker.id}/heartbeat"

    assert call(path, beat(worker, 1), credential=worker.credential, hang_up=True)[0] == 0
    assert worker.row.beat == 0


def test_only_what_workers_repeat_goes_this_way() -> None:
    worker_id = "3f6c1d8e-92b4-4f0a-8a51-6c2b7de09f14"
    repeated = ["register", f"{worker_id}/heartbeat", f"{worker_id}/jobs/claim", f"{worker_id}/jobs/{worker_id}/events"]
    assert all(re.match(calls.PATHS, f"/api/v1/workers/{path}") for path in repeated)
    for other in ("enroll", worker_id, f"{worker_id}/signals"):  # revoking may come with a session of the portal
        assert not re.match(calls.PATHS, f"/api/v1/workers/{other}")


def test_calls_that_wait_for_locks_hold_no_sign_of_life_up(worker: WireWorker) -> None:
    blocked = threading.Event()
    waiting = [calls._others.submit(blocked.wait, 20) for _ in range(2 * calls.OTHER_THREADS)]
    try:
        status, _, _ = call(f"/api/v1/workers/{worker.id}/heartbeat", beat(worker, 1), credential=worker.credential)
    finally:
        blocked.set()

    assert status == 200
    assert all(done.result() for done in waiting)
