"""`/artifacts/{job}/{path}`: where a worker delivers the results of a batch job, and nothing else.

A plain ASGI application of the data plane, for the bearer of the runtime token of the job's own lease, while that lease
is not released:

    GET  /artifacts/{job}          what is here already, and how much may come
    POST /artifacts/{job}          which results were not even sent, and why
    PUT  /artifacts/{job}/{path}   one result, with Content-Length and Content-Digest: sha-256=:…:

Whether it may come is decided before any of it is read. It is streamed to disk, and taken when its digest is right; of
what is here already nothing is written again. People fetch results elsewhere (`artifacts_download.py`).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import logging
import re
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_to_bytes

from django.db import Error as DatabaseError
from psycopg_pool import PoolTimeout

from jobs import artifacts
from jobs.artifact_store import Incoming
from jobs.errors import ArtifactRefused, BadArtifactPath, JobError, NotYourArtifacts, StaleLease
from jobs.models import Lease
from runtime_proxy.arrival import first
from runtime_proxy.database import in_database
from runtime_proxy.upload import ClientGone, Receive, Send, Upload

logger = logging.getLogger(__name__)

Scope = dict[str, Any]

ROOT = b"/artifacts/"
STALL_SECONDS = 120.0  # a worker that sends nothing for so long is gone
WRITTEN_AT_ONCE = 1024 * 1024  # bytes per step into a thread: a step costs some 50 µs, a piece of the network is 64 KiB
JSON_LIMIT = 256 * 1024
DRAINED_BYTES = 1024 * 1024  # of a refused result, so that its sender hears why instead of a reset connection

STATUSES = {
    "artifacts_denied": 401,
    "lease_stale": 409,
    "invalid": 422,
    "malformed": 400,
    "digest_mismatch": 422,
    "too_large": 413,
    "quota_exceeded": 413,
    "storage_full": 503,
    "unavailable": 503,
    "length_required": 411,
    "not_found": 404,
}
RETRY_AFTER_SECONDS = {"storage_full": 60, "unavailable": 2}

_DIGEST = re.compile(rb"(?:^|,)\s*sha-256=:([A-Za-z0-9+/]{43}=):\s*(?:,|$)", re.IGNORECASE)  # RFC 9530, RFC 8941


@dataclass(frozen=True)
class Target:
    """What an address names. `path` empty: the job's results as a whole; None: something that no result can be."""

    job_id: uuid.UUID
    path: str | None


class Refusal(JobError):
    """The request itself is wrong."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve one request whose raw path begins with `/artifacts/`."""
    upload = Upload(receive, expects_continue=False)
    try:
        status, body = await _answered(scope, upload)
    except ClientGone:
        return
    await _say(send, status, body, rest_unread=not upload.finished.is_set())


async def _answered(scope: Scope, upload: Upload) -> tuple[int, dict[str, Any]]:
    try:
        return await _serve(scope, upload)
    except (JobError, DatabaseError, PoolTimeout, OSError) as problem:  # a TimeoutError is an OSError
        refused = _refused(problem)
    with suppress(TimeoutError):
        await _drain(scope, upload, at_most=DRAINED_BYTES)
    return refused


async def _serve(scope: Scope, upload: Upload) -> tuple[int, dict[str, Any]]:
    target = parse(scope["raw_path"])
    if target is None:
        raise NotYourArtifacts
    lease = await in_database(artifacts.lease_of, target.job_id, _bearer(first(scope["headers"], b"authorization")))
    match scope["method"], target.path:
        case "GET" | "HEAD", "":
            return 200, await in_database(_inventory, lease)
        case "POST", "":
            return await _note_left_out(lease, upload)
        case "PUT", None:
            raise BadArtifactPath
        case "PUT", str(path) if path:
            return await _take(scope, lease, path, upload)
    raise Refusal("not_found", "Results are delivered with PUT, and listed with GET at the job's address.")


def parse(raw_path: bytes) -> Target | None:
    """Return what a raw path names; None: no job. A path's own rules are checked when it is used.

    Parts are decoded one by one, so that an encoded slash is part of a name, which no name may have.
    """
    job, slash, rest = raw_path[len(ROOT) :].partition(b"/")
    try:
        job_id = uuid.UUID(job.decode("ascii"))
    except ValueError:
        return None
    return Target(job_id, decoded(rest) if rest or not slash else None)


def decoded(raw: bytes) -> str | None:
    """Return the path that its encoded form names, or None where a part is no UTF-8 or has an encoded slash."""
    try:
        names = [unquote_to_bytes(name).decode("utf-8") for name in raw.split(b"/")]
    except ValueError:
        return None
    return None if any("/" in name for name in names) else "/".join(names)


async def _take(scope: Scope, lease: Lease, path: str, upload: Upload) -> tuple[int, dict[str, Any]]:
    length = first(scope["headers"], b"content-length")
    if not length.isdigit():
        raise Refusal("length_required", "A result comes with its Content-Length.")
    sha256 = read_digest(first(scope["headers"], b"content-digest"))
    if not await in_database(artifacts.expect, lease, path, size=int(length), sha256=sha256):
        await _drain(scope, upload, at_most=artifacts.limits().file_bytes)
        return 200, {"path": path, "size": int(length), "sha256": sha256}
    incoming = await asyncio.to_thread(Incoming)
    try:
        await _receive(upload, incoming)
        artifact = await in_database(artifacts.keep, lease, path, incoming, sha256=sha256)
    finally:
        await asyncio.shield(asyncio.to_thread(incoming.discard))
    logger.info("result taken", extra={"action": "artifact_taken", "lease": str(lease.pk), "bytes": artifact.size})
    return 201, {"path": path, "size": artifact.size, "sha256": sha256}


async def _receive(upload: Upload, incoming: Incoming) -> None:
    """Write the body to disk, off the event loop, in larger pieces than the network brings."""
    waiting = bytearray()
    while True:
        async with asyncio.timeout(STALL_SECONDS):
            piece = await anext(upload, b"")
        waiting += piece
        if waiting and (not piece or len(waiting) >= WRITTEN_AT_ONCE):
            await asyncio.to_thread(incoming.write, bytes(waiting))
            waiting.clear()
        if not piece:
            return


async def _note_left_out(lease: Lease, upload: Upload) -> tuple[int, dict[str, Any]]:
    body = bytearray()
    while piece := await anext(upload, b""):
        body += piece
        if len(body) > JSON_LIMIT:
            raise Refusal("too_large", f"The body is larger than {JSON_LIMIT // 1024} KiB.")
    try:
        entries = [_left_out(entry) for entry in json.loads(bytes(body))["left_out"]]
    except (ValueError, KeyError, TypeError):
        raise Refusal("malformed", "Expected {left_out: [{path, size, reason}]}.") from None
    await in_database(artifacts.leave_out, lease, entries)
    return 200, await in_database(_inventory, lease)


def _left_out(entry: Any) -> tuple[str, int | None, str]:
    path, size, reason = entry["path"], entry.get("size"), entry["reason"]
    if not isinstance(path, str) or not isinstance(reason, str):
        raise TypeError
    known = isinstance(size, int) and not isinstance(size, bool) and 0 <= size < 2**63
    return path, size if known else None, reason


def _inventory(lease: Lease) -> dict[str, Any]:
    """What the worker of this lease has delivered, and the limits that the rest is judged by."""
    limits = artifacts.limits()
    return {
        "files": [{"path": row.path, "size": row.size, "sha256": row.sha256} for row in artifacts.delivered(lease)],
        "max_file_bytes": limits.file_bytes,
        "max_job_bytes": limits.job_bytes,
        "max_files": limits.files,
    }


def read_digest(value: bytes) -> str:
    """Return the SHA-256 that a Content-Digest field names, as hex. Raises Refusal."""
    found = _DIGEST.search(value)
    try:
        if found is None:
            raise ValueError
        return base64.b64decode(found[1], validate=True).hex()
    except (ValueError, binascii.Error):
        raise Refusal("invalid", "A result comes with Content-Digest: sha-256=:…:") from None


def _bearer(value: bytes) -> str:
    scheme, _, token = value.partition(b" ")
    return token.strip().decode("ascii", "replace") if scheme.lower() == b"bearer" else ""


def _refused(problem: Exception) -> tuple[int, dict[str, Any]]:
    match problem:
        case ArtifactRefused() | StaleLease() | Refusal():
            body: dict[str, Any] = {"code": problem.code, "detail": str(problem)}
            if problem.code == "invalid":
                body["errors"] = {"path" if isinstance(problem, BadArtifactPath) else "content_digest": [str(problem)]}
        case _:
            logger.warning("result not taken: %s", problem, extra={"action": "artifact_not_taken"})
            body = {"code": "unavailable", "detail": "The result could not be stored now. Send it again in a moment."}
    return STATUSES[body["code"]], body


async def _drain(scope: Scope, upload: Upload, *, at_most: int) -> None:
    """Read a body that nobody wants, if it is no longer: a connection that is closed on its sender loses the answer.

    Who asked first whether to send it (Expect) is answered without.
    """
    length = first(scope["headers"], b"content-length")
    if not length.isdigit() or int(length) > at_most or first(scope["headers"], b"expect"):
        return
    piece = b"more"
    while piece:
        async with asyncio.timeout(STALL_SECONDS):
            piece = await anext(upload, b"")


async def _say(send: Send, status: int, body: dict[str, Any], *, rest_unread: bool) -> None:
    content = json.dumps(body, ensure_ascii=False).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(content)),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
    ]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if (wait := RETRY_AFTER_SECONDS.get(str(body.get("code")))) is not None:
        headers.append((b"retry-after", b"%d" % wait))
    if rest_unread:
        headers.append((b"connection", b"close"))  # what follows on it would be the rest of a body
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
