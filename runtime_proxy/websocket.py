"""`/run/{owner}/{name}/…` over WebSocket on the data plane: who may open one, and to which app.

Then the frames pass by themselves (sockets.py), and here it is only asked each minute whether they still may. The
portal's own WebSockets are in portal_websocket.py.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from runtime_proxy import addresses, escaping, pages
from runtime_proxy.arrival import edge_of, first
from runtime_proxy.asked import Asked
from runtime_proxy.browser_socket import EXTENSION, BrowserSocket, accept_key
from runtime_proxy.client_http import Broken, Response
from runtime_proxy.close_codes import NO_LONGER_ADMITTED, NOT_ADMITTED_ANY_MORE
from runtime_proxy.entrance import OUTAGES, Passage, enter, still_admitted
from runtime_proxy.headers import Edge, RawHeaders, to_app, to_browser
from runtime_proxy.limits import caller
from runtime_proxy.pages import Answer
from runtime_proxy.plane import Plane, plane
from runtime_proxy.sockets import Relay
from runtime_proxy.upload import Receive, Send
from runtime_proxy.upstream import GatewayAnswered, GatewayFailed, Upgraded
from runtime_proxy.watch import RECHECK_SECONDS

logger = logging.getLogger(__name__)

Scope = dict[str, Any]

# Of the browser's handshake, to the app as they are. Extensions are not: nobody here could undo them.
_PROTOCOL = b"sec-websocket-protocol"
_HANDSHAKE = frozenset({b"sec-websocket-key", b"sec-websocket-version", _PROTOCOL})


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve one WebSocket of the runtime origin. It is carried by frames: `receive` and `send` are not used."""
    browser: BrowserSocket = scope["extensions"][EXTENSION]
    here, edge = plane(), edge_of(scope)
    way = await _enter(here, scope)
    if isinstance(way, Answer):
        _refuse(browser, way)
        return
    who = caller(way.visitor, edge)
    refusal = here.limits.take(who, way.admission.space_id)
    if refusal is not None:
        _refuse(browser, pages.too_many(refusal, Asked("GET", browser.headers, websocket=True)))
        return
    try:
        await _connect(here, way, edge, browser)
    finally:
        here.limits.give(who, way.admission.space_id)


async def _connect(here: Plane, way: Passage, edge: Edge, browser: BrowserSocket) -> None:
    """Pass the handshake on, and what the app makes of it."""
    headers, upstream = browser.headers, way.upstream
    fields = to_app(headers, mount=upstream.mount, edge=edge, cookies=here.cookies, websocket=True)
    fields += [field for field in headers if field[0] in _HANDSHAKE]
    try:
        app = await here.pool.upgrade(upstream, way.path, fields)
        accepted = _accepted(app, headers) if isinstance(app, Upgraded) else []
    except GatewayFailed as failure:
        logger.warning(
            "gateway failed",
            extra={"action": "gateway_failed", "worker": upstream.worker_name, "lease": str(upstream.lease_id)},
        )
        _refuse(browser, pages.gateway_failed(upstream, Asked("GET", headers, websocket=True), failure))
        return
    passed = to_browser(
        app.headers,
        mount=upstream.mount,
        edge=edge,
        cookies=here.cookies,
        status=101 if isinstance(app, Upgraded) else app.status,
    )
    if isinstance(app, Response):
        await _pass_refusal(app, passed, browser, upstream.lease_id)
        return

    async def may_stay() -> bool:
        return await still_admitted(here, way, lambda: here.visitor(headers))

    try:
        relay = browser.accept([*accepted, *passed], app.transport, app.rest)
    except BaseException:
        app.transport.abort()
        raise
    await _look_after(relay, may_stay)


async def _enter(here: Plane, scope: Scope) -> Passage | Answer:
    headers = scope["headers"]
    asked = Asked("GET", headers, websocket=True)
    path = scope["raw_path"]
    try:
        visitor = await here.visitor(headers)
        if (
            addresses.parse(path) is None
        ):  # its client follows no redirect, so it is served as if it had kept its prefix
            prefix = await escaping.told_by_host(here, headers)
            if prefix is not None:
                here.escapes.note(prefix, path)
                path = prefix + path
    except OUTAGES:
        return pages.overloaded(asked)
    return await enter(
        here,
        path,
        scope["query_string"],
        visitor,
        asked,
        headers=headers,
        elsewhere="refuse",
        bare_query=scope["bare_query"],
    )


def _accepted(app: Upgraded, offer: RawHeaders) -> RawHeaders:
    """Return the app's choice of a subprotocol. Raises GatewayAnswered where it did not accept what was offered."""
    key = first(offer, b"sec-websocket-key")
    offered = [name.strip() for field, value in offer if field == _PROTOCOL for name in value.split(b",")]
    chosen = [(name, value) for name, value in app.headers if name == _PROTOCOL]
    accepts = [value for name, value in app.headers if name == b"sec-websocket-accept"]
    fits = (
        first(app.headers, b"upgrade").lower() == b"websocket"
        and accepts == [accept_key(key)]
        and not first(app.headers, b"sec-websocket-extensions")
        and len(chosen) <= 1
        and all(name in offered for _, name in chosen)
    )
    if not fits:
        app.transport.abort()
        raise GatewayAnswered("app-broke-off")
    return chosen


def _refuse(browser: BrowserSocket, whole: Answer) -> None:
    browser.refuse(whole.status, whole.headers, whole.body)


async def _pass_refusal(app: Response, headers: RawHeaders, browser: BrowserSocket, lease: uuid.UUID) -> None:
    try:
        await browser.refuse_as_read(app.status, headers, app.read)
    except Broken:
        logger.info("upstream broke off", extra={"action": "upstream_broke_off", "lease": str(lease)})
    finally:
        app.close()


async def _look_after(relay: Relay, may_stay: Callable[[], Awaitable[bool]]) -> None:
    """Return when both connections have ended; end them when the right to them has."""
    try:
        while not (await asyncio.wait({relay.ended}, timeout=RECHECK_SECONDS))[0]:
            if not await may_stay():
                relay.close(browser=(NO_LONGER_ADMITTED, NOT_ADMITTED_ANY_MORE))
                await relay.ended
    finally:
        relay.abort()
