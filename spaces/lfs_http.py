"""Git LFS for workers, the reading half: the batch call, and the objects themselves.

Below `/git/{owner}/{repo}.git/info/lfs/`, on the same terms as the repository's git: who may was decided before. The
transfer is LFS's own "basic" one, a GET per object on this origin, so that a worker needs no route to the forge and no
credential of it. See docs/api/batch.md and basic-transfers.md of git-lfs.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Iterable
from contextlib import aclosing
from typing import Any

from asgiref.sync import ThreadSensitiveContext
from channels.db import database_sync_to_async
from django.conf import settings

from spaces.forge import get_forge
from spaces.forge.base import Repository
from spaces.forge.errors import ForgeError, NotFound, Unavailable
from spaces.http_exchange import Body, Gone, Header, Message, Send, head, header, say, send_chunk, while_wanted

logger = logging.getLogger(__name__)

JSON = b"application/vnd.git-lfs+json"
BATCH_LIMIT = 1024 * 1024  # bytes; git-lfs asks for 100 objects at a time, some 15 KB
OBJECTS_LIMIT = 1000  # of one batch
CONCURRENT = 64  # objects sent at a time in one process; each holds a file open
TRANSFER_SECONDS = 4 * 3600.0  # of one object, however fast

_OBJECT = re.compile(r"info/lfs/objects/(?P<oid>[0-9a-f]{64})\Z")
_OID = re.compile(r"[0-9a-f]{64}\Z")
_RANGE = re.compile(rb"bytes=(?P<first>\d{1,18})-(?P<last>\d{0,18})")

_slots = asyncio.Semaphore(CONCURRENT)  # never waited for, so it belongs to no event loop


async def serve(scope: Message, body: Body, send: Send, repo: Repository, rest: str) -> None:
    """Answer a request below `info/lfs/` of a repository that the caller may read."""
    wanted = _OBJECT.match(rest)
    match scope["method"]:
        case "POST" if rest == "info/lfs/objects/batch":
            await _batch(scope, body, send, repo)
        case "GET" | "HEAD" if wanted:
            await _object(scope, body, send, repo, wanted["oid"])
        case _:
            await _answer(send, 404, {"message": "Only downloads by the batch API are served here."})


async def _batch(scope: Message, body: Body, send: Send, repo: Repository) -> None:
    try:
        request = await _json(body)
        asked = _objects(request)
    except Gone:
        return
    except TimeoutError:
        return await _answer(send, 408, {"message": "The request did not arrive."})
    except ValueError as problem:
        return await _answer(send, 422, {"message": str(problem)})
    if request.get("operation") != "download":
        return await _answer(send, 403, {"message": "Repositories are read-only here: push to the forge."})
    try:
        async with ThreadSensitiveContext():
            sizes: dict[str, int] = await database_sync_to_async(get_forge().lfs_sizes)(repo, list(asked))
    except Unavailable as problem:
        wait = str(round(problem.retry_after)).encode()
        return await _answer(send, 503, {"message": str(problem)}, [(b"retry-after", wait)])
    where = _address(scope)
    lines = [_line(oid, sizes.get(oid), where, told=told) for oid, told in asked.items()]
    await _answer(send, 200, {"transfer": "basic", "objects": lines})


def _line(oid: str, size: int | None, where: str, *, told: int | None) -> dict[str, Any]:
    """`told`: the size that the pointer says. Who counts on it must not be sent another."""
    if size is None:
        return {"oid": oid, "size": 0, "error": {"code": 404, "message": "The object is not on this server."}}
    if told is not None and told != size:
        return {"oid": oid, "size": size, "error": {"code": 422, "message": "Its pointer tells another size."}}
    # No header of ours: the caller's own Authorization is good for the object too.
    return {"oid": oid, "size": size, "authenticated": True, "actions": {"download": {"href": f"{where}/{oid}"}}}


def _address(scope: Message) -> str:
    """Where the objects of this repository are: on the origin that the caller used, in its own spelling."""
    path = scope["raw_path"].decode("ascii").partition("?")[0].removesuffix("/batch")
    hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
    origin = settings.OPENFACE_DATA_URL or f"{scope.get('scheme', 'http')}://{hosts[0] if hosts else 'localhost'}"
    return f"{origin.rstrip('/')}{path}"


async def _json(body: Body) -> dict[str, Any]:
    content = bytearray()
    async for chunk in body.chunks():
        content += chunk
        if len(content) > BATCH_LIMIT:
            raise ValueError(f"The request has more than {BATCH_LIMIT} bytes.")
    try:
        request = json.loads(bytes(content))
    except RecursionError:
        raise ValueError("The request is nested too deeply.") from None
    if not isinstance(request, dict):
        raise ValueError("The request is not a JSON object.")
    return request


def _objects(request: dict[str, Any]) -> dict[str, int | None]:
    """The objects that are asked for, with the size that each one's pointer tells."""
    objects = request.get("objects")
    if not isinstance(objects, list) or len(objects) > OBJECTS_LIMIT:
        raise ValueError(f"`objects` must be a list of at most {OBJECTS_LIMIT} objects.")
    oids = [one.get("oid") if isinstance(one, dict) else None for one in objects]
    if not all(isinstance(oid, str) and _OID.match(oid) for oid in oids):
        raise ValueError("An object's `oid` is not a SHA-256 digest.")
    if request.get("hash_algo", "sha256") != "sha256" or "basic" not in request.get("transfers", ["basic"]):
        raise ValueError("Only SHA-256 and the transfer `basic` are known here.")
    return {str(one["oid"]): size if isinstance(size := one.get("size"), int) else None for one in objects}


async def _object(scope: Message, body: Body, send: Send, repo: Repository, oid: str) -> None:
    if _slots.locked():
        return await _answer(send, 503, {"message": "Too many downloads at once."}, [(b"retry-after", b"3")])
    async with _slots:
        try:
            async for _ in body.chunks():
                pass  # a GET has none; reading to its end lets us hear that the client hangs up
        except (Gone, TimeoutError):
            return
        await while_wanted(body, asyncio.create_task(_transfer(scope, send, repo, oid)))


async def _transfer(scope: Message, send: Send, repo: Repository, oid: str) -> None:
    try:
        async with ThreadSensitiveContext():
            sizes: dict[str, int] = await database_sync_to_async(get_forge().lfs_sizes)(repo, [oid])
        if oid not in sizes:
            raise NotFound("The object is not on this server.")
    except NotFound as problem:
        return await _answer(send, 404, {"message": str(problem)})
    except ForgeError as problem:
        return await _answer(send, 503, {"message": str(problem)}, [(b"retry-after", b"5")])
    size = sizes[oid]
    wanted = _wanted(scope, size)
    if wanted is not None and not wanted:
        return await _answer(send, 416, {"message": "There is no more."}, [(b"content-range", b"bytes */%d" % size)])
    part = range(size) if wanted is None else wanted
    facts = [(b"content-type", b"application/octet-stream"), (b"content-length", b"%d" % len(part))]
    if wanted is not None:
        facts.append((b"content-range", b"bytes %d-%d/%d" % (part.start, part.stop - 1, size)))
    await send(head(200 if wanted is None else 206, facts))
    if scope["method"] == "HEAD":
        return await send_chunk(send, b"", more=False)
    # An error from here on breaks the answer off: the length was promised, so the client sees that it is not whole.
    async with asyncio.timeout(TRANSFER_SECONDS), aclosing(_generator(repo, oid)) as chunks:
        at = 0  # a forge tells an object from its beginning; what matters is the long way to the worker
        async for chunk in chunks:
            inside = chunk[max(0, part.start - at) : max(0, part.stop - at)]
            at += len(chunk)
            if inside:
                await send_chunk(send, inside, more=True)
            if at >= part.stop:
                break
    await send_chunk(send, b"", more=False)


def _wanted(scope: Message, size: int) -> range | None:
    """The bytes that a download goes on with; empty where there are none, None where the whole object is wanted."""
    asked = _RANGE.fullmatch(header(scope, b"range"))
    if asked is None or scope["method"] != "GET":  # one of another kind may be ignored (RFC 9110, 14.2)
        return None
    first, last = int(asked["first"]), int(asked["last"] or size)
    return range(first, min(last + 1, size)) if first <= last or not asked["last"] else None


def _generator(repo: Repository, oid: str) -> Any:
    """The forge's answer; an async generator, though the interface promises no more than an iterator."""
    return get_forge().serve_lfs(repo, oid)


async def _answer(send: Send, status: int, content: object, headers: Iterable[Header] = ()) -> None:
    await say(send, status, json.dumps(content), list(headers), kind=JSON)
