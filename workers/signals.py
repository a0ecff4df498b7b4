"""The signal stream: `GET /api/v1/workers/{id}/signals`, server-sent events, as a plain ASGI application.

A signal is a hint: `work` (ask for a job now), `stop` (this lease is to end), `standing` (look at your standing). Who
misses one learns the same from the next heartbeat or poll. A stream asks the database once when it opens and when a
notice concerns its worker, and holds neither a connection nor a thread in between: a Django view would hold both.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from asgiref.sync import ThreadSensitiveContext
from asgiref.typing import ASGIReceiveCallable, ASGISendCallable, HTTPScope, Scope
from channels.db import database_sync_to_async
from django.db import Error as DatabaseError

from jobs import notices
from jobs.models import Lease
from workers import waking
from workers.addresses import check_network, client_address
from workers.api.authentication import worker_of
from workers.api.errors import answer_for
from workers.errors import CredentialInvalid, NotYourWorker, UnknownWorker, WorkerError
from workers.models import Worker
from workers.waking import WAKER

logger = logging.getLogger(__name__)

COMMENT_EVERY_SECONDS = 15.0  # under the idle limit of any proxy, and how a dead peer is noticed
KINDS = (waking.WAKE, "stop", "standing")
PATH = re.compile(r"(?:.*/)?workers/([0-9a-fA-F-]{36})/signals")


async def application(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
    """Serve one stream, until the client goes or the worker is revoked."""
    if scope["type"] != "http":
        return
    if scope["method"] != "GET":
        await _refuse(send, 405, {"code": "method_not_allowed", "detail": "Only GET is served here."})
        return
    # Subscribe first and look then: what happens in between is in the mailbox.
    async with notices.mailbox(KINDS) as box:
        try:
            worker_id = await _ask(_authenticate, scope)
        except (WorkerError, DatabaseError) as error:
            answer = answer_for(error, {})
            assert answer is not None
            await _refuse(send, answer.status_code, answer.data, dict(answer.items()))
            return
        with WAKER.stream(worker_id, box):
            await _start(send, 200, _STREAM_HEADERS)
            await _send(send, ": open\n\n")
            # What was signalled before this moment is unknown, so: one look.
            await _send(send, _event("work", {}))
            still_there = await _until_gone(receive, _pump(send, box, worker_id))
        if still_there:
            # Without this the server keeps the connection open for an application that has returned.
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _pump(send: ASGISendCallable, box: notices.Mailbox, worker_id: uuid.UUID) -> None:
    while True:
        notice = await box.get(COMMENT_EVERY_SECONDS)
        if notice is None:
            await _send(send, ": keep-alive\n\n")
            continue
        async for text in _signals(notice, worker_id):
            await _send(send, text)
            if text == _END:
                return


_END = "event: standing\ndata: {}\n\n"  # the last word to a revoked worker: it asks, and is told why


async def _signals(notice: notices.Notice, worker_id: uuid.UUID) -> AsyncIterator[str]:
    """What a notice means for this worker, as events."""
    mine = notice.ids.get("worker") == str(worker_id)
    if notice.kind == waking.WAKE:
        yield _event("work", {})
    elif notice.kind == "stop" and mine:
        lease_id = await _ask(_lease_of, uuid.UUID(notice.ids["job"]), worker_id)
        if lease_id is not None:
            yield _event("stop", {"lease": str(lease_id)})
    elif notice.kind == notices.RESYNC or (notice.kind == "standing" and mine):
        scheduling = await _ask(_standing_of, worker_id)
        yield _END if scheduling is None else _event("standing", {"standing": scheduling})
        if notice.kind == notices.RESYNC:
            yield _event("work", {})


async def _until_gone(receive: ASGIReceiveCallable, work: Coroutine[Any, Any, None]) -> bool:
    """Run `work` until it ends or the client disconnects; return whether the client is still there."""
    pump = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({pump, gone}, return_when=asyncio.FIRST_COMPLETED)
        if pump.done():
            pump.result()
        return not gone.done()
    except DatabaseError:
        # The stream ends and the worker opens another; its heartbeats tell it the same meanwhile.
        logger.warning("signal stream ended: database unavailable", extra={"action": "signals_ended"})
        return not gone.done()
    finally:
        for task in (pump, gone):
            task.cancel()
        await asyncio.gather(pump, gone, return_exceptions=True)


async def _disconnected(receive: ASGIReceiveCallable) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _ask(function: Callable[..., Any], *args: Any) -> Any:
    """One question to the database, in a thread of its own: without the context all streams would share one."""
    async with ThreadSensitiveContext():
        return await database_sync_to_async(function)(*args)


def _authenticate(scope: HTTPScope) -> uuid.UUID:
    match = PATH.fullmatch(scope["path"])
    try:
        wanted = uuid.UUID(match[1]) if match else None
    except ValueError:
        wanted = None
    if wanted is None:
        raise UnknownWorker("There is nothing here.")
    headers = {name.lower(): value for name, value in scope.get("headers", [])}
    peer = (scope.get("client") or ("", 0))[0]
    check_network(client_address(peer, headers.get(b"x-forwarded-for", b"").decode("latin-1")))
    if b"authorization" not in headers:
        raise CredentialInvalid
    worker = worker_of(headers[b"authorization"])
    if worker.pk != wanted:
        raise NotYourWorker
    return worker.pk


def _lease_of(job_id: uuid.UUID, worker_id: uuid.UUID) -> uuid.UUID | None:
    """The lease under which the worker has, or last had, this job."""
    leases = Lease.objects.filter(job=job_id, worker=worker_id, cleared_at=None).order_by("-acquired_at")
    return leases.values_list("pk", flat=True).first()


def _standing_of(worker_id: uuid.UUID) -> str | None:
    """The worker's scheduling; None where it was revoked."""
    return Worker.objects.filter(pk=worker_id, revoked_at=None).values_list("scheduling", flat=True).first()


def _event(name: str, data: dict[str, str]) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


async def _start(send: ASGISendCallable, status: int, headers: list[tuple[bytes, bytes]]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers, "trailers": False})


async def _send(send: ASGISendCallable, text: str) -> None:
    await send({"type": "http.response.body", "body": text.encode("utf-8"), "more_body": True})


async def _refuse(send: ASGISendCallable, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
    raw = json.dumps(body).encode("utf-8")
    lines = {**(headers or {}), "Content-Type": "application/json", "Content-Length": str(len(raw))}
    encoded = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in lines.items()]
    await _start(send, status, encoded)
    await send({"type": "http.response.body", "body": raw, "more_body": False})
