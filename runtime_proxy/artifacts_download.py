"""`/results/{owner}/{name}/{job}/{path}`: a result of a batch job, for people who may read the Space's repository.

Whatever it is, it is untrusted: a download that no browser interprets, on the runtime origin only. A page of an app on
this origin could otherwise read its neighbours' results as the visitor, so a browser gets one by a navigation alone.
"""

from __future__ import annotations

import asyncio
import os
import re
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import quote

from jobs import artifact_paths, artifact_store, artifacts
from jobs.models import Artifact
from runtime_proxy import addresses, pages
from runtime_proxy.arrival import first
from runtime_proxy.artifacts import decoded
from runtime_proxy.asked import Asked
from runtime_proxy.database import in_database
from runtime_proxy.entrance import OUTAGES, proper_host, proper_place, to_sign_in
from runtime_proxy.headers import RawHeaders
from runtime_proxy.http import answer
from runtime_proxy.pages import Answer
from runtime_proxy.plane import plane
from spaces.models import Space

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

PIECE_BYTES = 256 * 1024
STALL_SECONDS = 300.0  # a browser that takes nothing for so long has paused for good; it can go on with a Range

_RANGE = re.compile(rb"bytes=(\d{0,18})-(\d{0,18})\Z")


class Part(NamedTuple):
    """The bytes to send: from `start`, up to but without `end`."""

    start: int
    end: int


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve one request whose raw path begins with `/results/`."""
    asked = Asked(scope["method"], scope["headers"])
    try:
        found = await _find(scope, asked)
    except OUTAGES:
        found = pages.overloaded(asked)
    except Space.DoesNotExist:
        found = pages.not_found(asked)
    if isinstance(found, Answer):
        await answer(send, found)
        return
    try:
        file = await asyncio.to_thread(artifact_store.path_of(found.pk).open, "rb")
    except FileNotFoundError:  # pruned this very moment, or the disk was lost
        await answer(send, pages.not_found(asked))
        return
    try:
        await _send(scope, receive, send, found, file)
    finally:
        file.close()


async def _find(scope: Scope, asked: Asked) -> Artifact | Answer:
    """Return the result, or what to say instead. Missing and not yours look the same."""
    headers: RawHeaders = scope["headers"]
    if scope["method"] not in ("GET", "HEAD"):
        return pages.not_found(asked)
    if first(headers, b"sec-fetch-mode") not in (b"", b"navigate"):
        return pages.not_found(asked)
    address = addresses.parse(scope["raw_path"], root=addresses.RESULTS)
    if address is None:
        return pages.not_found(asked)
    elsewhere = proper_host(address, scope["raw_path"], scope["query_string"], headers)
    if elsewhere is not None:
        return elsewhere
    here = plane()
    visitor = await here.visitor(headers)
    if visitor.refused:
        return pages.token_refused(asked)
    admission = await here.admit(visitor, address.owner, address.name)
    if admission is None:
        if visitor.is_anonymous and asked.navigation:
            return to_sign_in(scope["raw_path"], scope["query_string"], headers)
        return pages.not_found(asked)
    named = _named(address.rest)
    if named is None:
        return pages.not_found(asked)
    elsewhere = proper_place(address, admission, scope["query_string"])
    if elsewhere is not None:
        return elsewhere
    found = await in_database(artifacts.find, named[0], named[1], space_id=admission.space_id)
    return found or pages.not_found(asked)


def _named(rest: bytes) -> tuple[uuid.UUID, str] | None:
    """Return the job and the path that the end of an address names, or None."""
    job, _, raw = rest.removeprefix(b"/").partition(b"/")
    path = decoded(raw)
    try:
        return None if path is None else (uuid.UUID(job.decode("ascii")), path)
    except ValueError:
        return None


async def _send(scope: Scope, receive: Receive, send: Send, artifact: Artifact, file: BinaryIO) -> None:
    size = os.fstat(file.fileno()).st_size
    etag = f'"{artifact.sha256}"'.encode("ascii")
    headers = [*_fixed_headers(artifact.path), (b"etag", etag), (b"accept-ranges", b"bytes")]
    part = part_of(size, first(scope["headers"], b"range"), first(scope["headers"], b"if-range"), etag)
    if part is None:
        await answer(send, Answer(416, [*headers, (b"content-range", b"bytes */%d" % size), (b"content-length", b"0")]))
        return
    status = 200
    if part != Part(0, size):
        status = 206
        headers.append((b"content-range", b"bytes %d-%d/%d" % (part.start, part.end - 1, size)))
    headers.append((b"content-length", b"%d" % (part.end - part.start)))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    if scope["method"] == "HEAD":
        await send({"type": "http.response.body", "body": b""})
        return
    work = asyncio.create_task(_stream(send, file, part))
    watch = asyncio.create_task(_gone(receive))
    try:
        await asyncio.wait([work, watch], return_when=asyncio.FIRST_COMPLETED)
    finally:
        watch.cancel()
        work.cancel()
        await asyncio.gather(work, watch, return_exceptions=True)
    # Where it was cut short, returning without the last piece makes the server break the connection off.


def part_of(size: int, range_: bytes, if_range: bytes, etag: bytes) -> Part | None:
    """Return what a request asks for (RFC 9110 §14); the whole where it asks for no single range we know of.

    None: there is nothing where it asks for. A range of another version of the file asks for the whole of this one.
    """
    match = _RANGE.match(range_)
    if match is None or (if_range and if_range != etag) or not (match[1] or match[2]):
        return Part(0, size)
    if not match[1]:
        last = int(match[2])
        return Part(max(size - last, 0), size) if last and size else None
    start, end = int(match[1]), min(int(match[2]) + 1, size) if match[2] else size
    if match[2] and int(match[2]) < start:
        return Part(0, size)  # not a valid range at all
    return Part(start, end) if start < size else None


def _fixed_headers(path: str) -> RawHeaders:
    name = artifact_paths.name_to_save(path)
    plain = re.sub(r"[^A-Za-z0-9._ -]", "_", name)
    disposition = f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"
    return [
        (b"content-type", b"application/octet-stream"),
        (b"content-disposition", disposition.encode("ascii")),
        (b"x-content-type-options", b"nosniff"),
        (b"content-security-policy", b"sandbox; default-src 'none'; frame-ancestors 'none'"),
        (b"cross-origin-resource-policy", b"same-origin"),
        (b"referrer-policy", b"no-referrer"),
        (b"cache-control", b"private, no-cache"),  # the right to read it may end
    ]


async def _stream(send: Send, file: BinaryIO, part: Part) -> None:
    file.seek(part.start)
    left = part.end - part.start
    while left > 0:
        piece = await asyncio.to_thread(file.read, min(PIECE_BYTES, left))
        if not piece:
            return
        left -= len(piece)
        async with asyncio.timeout(STALL_SECONDS):
            await send({"type": "http.response.body", "body": piece, "more_body": left > 0})
    if part.start == part.end:
        await send({"type": "http.response.body", "body": b""})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
