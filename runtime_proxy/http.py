"""`/run/{owner}/{name}/…` over HTTP: a plain ASGI application that streams both ways and buffers nothing.

An upstream that breaks off leaves the browser's answer broken too: it is never ended as if it were complete.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from runtime_proxy import addresses, escaping, handover, pages
from runtime_proxy.arrival import cookies_of, edge_of
from runtime_proxy.asked import Asked
from runtime_proxy.client_http import Broken, Response
from runtime_proxy.database import in_database
from runtime_proxy.entrance import OUTAGES, Passage, enter, still_admitted
from runtime_proxy.headers import Edge, to_app, to_browser
from runtime_proxy.limits import caller
from runtime_proxy.pages import Answer
from runtime_proxy.plane import Plane, plane
from runtime_proxy.upload import ClientGone, Receive, Send, Upload
from runtime_proxy.upstream import GatewayFailed
from runtime_proxy.watch import Watch

logger = logging.getLogger(__name__)

Scope = dict[str, Any]


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve one request of the runtime origin below `/run/`."""
    here = plane()
    edge = edge_of(scope)
    asked = Asked(scope["method"], scope["headers"])
    try:
        visitor = await here.visitor(scope["headers"])
    except OUTAGES:
        await answer(send, pages.overloaded(asked))
        return
    way = await enter(
        here,
        scope["raw_path"],
        scope["query_string"],
        visitor,
        asked,
        headers=scope["headers"],
        bare_query=scope["bare_query"],
    )
    if isinstance(way, Answer):
        if way.status == 404 and addresses.parse(scope["raw_path"]) is None:
            way = await escaping.answered(scope)  # "/run/predict" of a page that forgot its prefix
        await answer(send, way)
        return
    who = caller(visitor, edge)
    refusal = here.limits.take(who, way.admission.space_id)
    if refusal is not None:
        await answer(send, pages.too_many(refusal, asked))
        return
    try:
        await _relay(here, way, edge, scope, receive, send)
    finally:
        here.limits.give(who, way.admission.space_id)


async def escaped(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a path that is none of ours: an app's page that forgot its prefix is sent back below it."""
    await answer(send, await escaping.answered(scope))


async def static(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve the few files that our own pages on the runtime origin need."""
    found = pages.static_file(scope["raw_path"].removeprefix(pages.STATIC))
    await answer(send, found or pages.not_found(Asked(scope["method"], scope["headers"])))


async def hand_over(scope: Scope, receive: Receive, send: Send) -> None:
    """Swap the portal's one-time code for a session of this origin, and go where the visitor wanted to go."""
    headers = scope["headers"]
    asked = Asked(scope["method"], headers)
    query = handover.read_query(scope["query_string"])
    if query is None:
        await answer(send, pages.bad_request(asked))
        return
    if addresses.parse_any(query.to.partition("?")[0].encode("latin-1", "replace")) is None:
        await answer(send, pages.not_found(asked))
        return
    if not query.code:  # the portal knows nobody, and its sign-in page shows in no frame
        await answer(send, pages.sign_in(asked, next_path=query.to))
        return
    nonce = handover.cookie_value(cookies_of(headers), handover.nonce_cookie_name())
    try:
        session = await in_database(handover.exchange, query.code, nonce=nonce) if nonce else None
    except OUTAGES:
        await answer(send, pages.overloaded(asked))
        return
    if session is None:
        await answer(send, pages.hand_over_failed(asked, next_path=query.to))
        return
    cookie = handover.set_cookie(handover.session_cookie_name(), session)
    await answer(send, pages.redirect(302, query.to.encode("latin-1", "replace"), cookies=(cookie,)))


async def answer(send: Send, whole: Answer) -> None:
    """Send an answer of ours."""
    await send({"type": "http.response.start", "status": whole.status, "headers": whole.headers})
    await send({"type": "http.response.body", "body": whole.body})


async def _relay(here: Plane, passage: Passage, edge: Edge, scope: Scope, receive: Receive, send: Send) -> None:
    headers = scope["headers"]
    upload = _upload(headers, receive)

    async def may_stay() -> bool:
        return await still_admitted(here, passage, lambda: here.visitor(headers))

    watch = Watch(here.rounds, receive, upload, may_stay)
    try:
        await _exchange(here, passage, edge, scope, upload, send)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if not watch.ended or task is None or task.uncancel() > 0:
            raise
    finally:
        watch.stop()


async def _exchange(here: Plane, passage: Passage, edge: Edge, scope: Scope, upload: Upload | None, send: Send) -> None:
    upstream, method = passage.upstream, scope["method"]
    asked = to_app(scope["headers"], mount=upstream.mount, edge=edge, cookies=here.cookies)
    try:
        response = await here.pool.request(method, upstream, passage.path, asked, upload)
    except ClientGone:
        return
    except GatewayFailed as failure:
        logger.warning(
            "gateway failed",
            extra={"action": "gateway_failed", "worker": upstream.worker_name, "lease": str(upstream.lease_id)},
        )
        await answer(send, pages.gateway_failed(upstream, Asked(method, scope["headers"]), failure))
        return
    try:
        raw = to_browser(
            response.headers, mount=upstream.mount, edge=edge, cookies=here.cookies, status=response.status
        )
        await send({"type": "http.response.start", "status": response.status, "headers": raw})
        await _stream(response, send)
    except (Broken, ClientGone, OSError):
        # Returning without the last piece makes the server cut the connection: the browser sees a broken answer.
        logger.info("upstream broke off", extra={"action": "upstream_broke_off", "lease": str(upstream.lease_id)})
    finally:
        response.close()


async def _stream(response: Response, send: Send) -> None:
    """Send the body on, piece by piece as it comes; `send` waits while the browser is slower."""
    while True:
        *earlier, piece = await response.read_pieces() or (b"",)
        last = response.at_end
        for each in earlier:
            await send({"type": "http.response.body", "body": each, "more_body": True})
        await send({"type": "http.response.body", "body": piece, "more_body": not last})
        if last:
            return


def _upload(headers: list[tuple[bytes, bytes]], receive: Receive) -> Upload | None:
    """Return the body, where the request has one."""
    length = expects = b""
    chunked = False
    for name, value in headers:
        if name == b"content-length":
            length = value
        elif name == b"transfer-encoding":
            chunked = True
        elif name == b"expect":
            expects = value.lower()
    if not chunked and length in (b"", b"0"):
        return None
    return Upload(receive, expects_continue=expects == b"100-continue", chunked=chunked)
