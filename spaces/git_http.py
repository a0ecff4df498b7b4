"""`/git/{owner}/{repo}.git/…`: a job's source for the worker that holds its lease, and nothing else.

A plain ASGI application of the data plane: git's smart HTTP and LFS (`lfs_http.py`), the reading half. The password is
the lease's source token (`git_access.py` says what it opens), while the job is leased or building. Everything else gets
the same 401, so that nobody learns which repositories exist. Who may is decided in one database call; the transfer then
holds no connection.
"""

from __future__ import annotations

import asyncio
import logging
import re
import zlib
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any
from urllib.parse import parse_qs

from asgiref.sync import ThreadSensitiveContext
from channels.db import database_sync_to_async

from spaces import git_access, lfs_http
from spaces.forge import get_forge
from spaces.forge.base import GitRequest, Repository
from spaces.forge.errors import ForgeError, TooLarge, Unavailable
from spaces.forge.git_commands import GitFailed
from spaces.http_exchange import Body, Gone, Message, Receive, Send, head, header, say, send_chunk, while_wanted

logger = logging.getLogger(__name__)

REQUEST_LIMIT = 16 * 1024 * 1024  # bytes, decoded: what is wanted and had; a clone sends a few hundred
TRANSFER_SECONDS = 3600.0  # of one pack, however fast; build limits are of the same size
CONCURRENT = 16  # packs made at a time in one process; each costs a process and the memory of git's delta search

_PATH = re.compile(r"/git/(?P<owner>[\w.-]{1,100})/(?P<name>[\w.-]{1,100}?)\.git/(?P<rest>.*)\Z", re.ASCII)
_PROTOCOL = re.compile(r"version=[012](?::[a-z0-9=:_-]{0,64})?\Z")

_slots = asyncio.Semaphore(CONCURRENT)  # never waited for, so it belongs to no event loop


async def application(scope: Message, receive: Receive, send: Send) -> None:
    """Serve one HTTP request whose path begins with `/git/`."""
    assert scope["type"] == "http", "mounted for http only"
    path = _PATH.match(scope["path"])
    service = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("service", [""])[0]
    if path is not None and (path["rest"] == "git-receive-pack" or service == "git-receive-pack"):
        await say(send, 403, "Repositories are read-only here: push to the forge.")
        return
    repo = await _authorised(scope, path["owner"], path["name"]) if path is not None else None
    if path is None or repo is None:
        challenge = [(b"www-authenticate", b'Basic realm="source of a lease", charset="UTF-8"')]
        await say(send, 401, "This needs the source token of a lease that may read here.", challenge)
        return
    if path["rest"].startswith("info/lfs/"):
        await lfs_http.serve(scope, Body(receive), send, repo, path["rest"])
        return
    match scope["method"], path["rest"], service:
        case "GET" | "HEAD", "info/refs", "git-upload-pack":
            await _advertise(scope, Body(receive), send, repo)
        case "POST", "git-upload-pack", "":
            await _upload_pack(scope, Body(receive), send, repo)
        case _:
            await say(send, 404, "Only git-upload-pack over smart HTTP is served here.")


async def _authorised(scope: Message, owner: str, name: str) -> Repository | None:
    """Return the repository that the request's token opens, or None. Holds no connection afterwards."""
    authorization = header(scope, b"authorization")
    if not authorization:
        return None
    # A context of its own: without it, every plain ASGI app of this process would share one thread.
    async with ThreadSensitiveContext():
        repo: Repository | None = await database_sync_to_async(git_access.opened_by)(authorization, owner, name)
    return repo


async def _advertise(scope: Message, body: Body, send: Send, repo: Repository) -> None:
    request = GitRequest("advertise", _protocol(scope), body.chunks())
    await _answer(scope, body, send, repo, request, b"application/x-git-upload-pack-advertisement")


async def _upload_pack(scope: Message, body: Body, send: Send, repo: Repository) -> None:
    if header(scope, b"content-type") != b"application/x-git-upload-pack-request":
        await say(send, 415, "Expected application/x-git-upload-pack-request.")
        return
    chunks = body.chunks()
    match header(scope, b"content-encoding").lower():
        case b"" | b"identity":
            pass
        case b"gzip" | b"x-gzip":
            chunks = _gunzip(chunks)
        case _:
            await say(send, 415, "Only gzip is understood as Content-Encoding.")
            return
    request = GitRequest("upload-pack", _protocol(scope), _bounded(chunks))
    await _answer(scope, body, send, repo, request, b"application/x-git-upload-pack-result")


async def _answer(
    scope: Message, body: Body, send: Send, repo: Repository, request: GitRequest, content_type: bytes
) -> None:
    """Send git's answer, and end git when the client hangs up."""
    if _slots.locked():
        await say(send, 503, "Too many clones at once; try again in a moment.", [(b"retry-after", b"3")])
        return
    async with _slots:
        await while_wanted(body, asyncio.create_task(_transfer(scope, send, repo, request, content_type)))


async def _transfer(scope: Message, send: Send, repo: Repository, request: GitRequest, content_type: bytes) -> None:
    """Send git's answer as it comes. An error before its first byte is a status, one after it breaks the answer."""
    started = False
    try:
        async with asyncio.timeout(TRANSFER_SECONDS), aclosing(_generator(repo, request)) as chunks:
            async for chunk in chunks:
                if not started:
                    started = True
                    await send(head(200, [(b"content-type", content_type)]))
                if scope["method"] != "HEAD":
                    await send_chunk(send, chunk, more=True)
            if started:
                await send_chunk(send, b"", more=False)
            else:
                await say(send, 400, "git could not make sense of the request.")
    except Gone:
        return
    except (ForgeError, GitFailed, ValueError, TimeoutError) as error:
        logger.info("clone not served", extra={"action": "git_refused", "repository": repo.id, "why": str(error)})
        if started:
            raise  # the server closes the connection, and the client sees an answer that is not whole
        await _refuse(send, error)


async def _refuse(send: Send, error: Exception) -> None:
    match error:
        case TooLarge():
            await say(send, 413, f"The request has more than {REQUEST_LIMIT} bytes.")
        case Unavailable():
            wait = str(round(error.retry_after)).encode()
            await say(send, 503, str(error), [(b"retry-after", wait)])
        case TimeoutError():
            await say(send, 503, "The repository did not answer in time.", [(b"retry-after", b"10")])
        case _:
            await say(send, 400, "git could not make sense of the request.")


def _generator(repo: Repository, request: GitRequest) -> Any:
    """The forge's answer; an async generator, though the interface promises no more than an iterator."""
    return get_forge().serve_git(repo, request)


async def _gunzip(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Decode in bounded steps, so that a small body cannot become a huge one in memory. ValueError: not gzip."""
    decoder = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        async for chunk in body:
            while chunk:
                decoded = decoder.decompress(chunk, 64 * 1024)
                if decoded:
                    yield decoded
                chunk = decoder.unconsumed_tail
        if not decoder.eof:
            raise ValueError("The gzip body ends early.")
    except zlib.error as error:
        raise ValueError("The body is not gzip.") from error


async def _bounded(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    size = 0
    async for chunk in body:
        size += len(chunk)
        if size > REQUEST_LIMIT:
            raise TooLarge
        yield chunk


def _protocol(scope: Message) -> str:
    """Return the header Git-Protocol if it is one that we know; it becomes part of git's environment."""
    value = header(scope, b"git-protocol").decode("latin-1")
    return value if _PROTOCOL.match(value) else ""
