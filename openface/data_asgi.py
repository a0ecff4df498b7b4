"""The data plane's entry point: everything that is bytes, on an origin of its own.

Served by `python -m openface.data_server`.
"""

from __future__ import annotations

import asyncio
import gc
import os
from contextlib import suppress

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "openface.settings")
os.environ.setdefault("OPENFACE_DATABASE_POOL", "true")  # before Django reads its settings

import django

django.setup()  # what follows imports models

from channels.routing import ProtocolTypeRouter  # noqa: E402

from openface import pg_listener  # noqa: E402
from runtime_proxy import (  # noqa: E402
    addresses,
    artifacts,
    artifacts_download,
    connections,
    escaping,
    gateways,
    handover,
    http,
    open_files,
    pages,
    websocket,
)
from runtime_proxy.plane import close_plane  # noqa: E402
from runtime_proxy.upload import Receive, Send  # noqa: E402
from spaces import git_http  # noqa: E402

RUN = b"/run/"
GIT = b"/git/"
HAND_OVER = handover.PATH.encode("ascii")
HEALTHZ = b"/healthz"


async def dispatch(scope: http.Scope, receive: Receive, send: Send) -> None:
    """Hand an HTTP request to whom its raw path belongs."""
    path: bytes = scope["raw_path"]
    if path.startswith(RUN):
        await http.application(scope, receive, send)
    elif path == HAND_OVER:
        await http.hand_over(scope, receive, send)
    elif path.startswith(pages.STATIC):
        await http.static(scope, receive, send)
    elif escaping.told_by_referer(scope["headers"]) is not None:
        await http.escaped(scope, receive, send)
    elif path.startswith(GIT):
        await git_http.application(scope, receive, send)
    elif path.startswith(artifacts.ROOT):
        await artifacts.application(scope, receive, send)
    elif path.startswith(addresses.RESULTS):
        await artifacts_download.application(scope, receive, send)
    elif path == HEALTHZ:
        await http.answer(send, pages.alive())
    else:
        await http.escaped(scope, receive, send)


async def lifespan(scope: http.Scope, receive: Receive, send: Send) -> None:
    """Open what all requests share when the server starts, and close it when it stops."""
    await receive()
    open_files.warn_below(connections.files_needed())
    pg_listener.start()
    gc.collect()
    gc.freeze()  # Django stays: without it the collector walks all of it again and again (a third of the CPU)
    checker = asyncio.create_task(gateways.keep_checking())
    await send({"type": "lifespan.startup.complete"})
    await receive()
    checker.cancel()
    with suppress(asyncio.CancelledError):
        await checker
    await close_plane()
    await send({"type": "lifespan.shutdown.complete"})


application = ProtocolTypeRouter(
    {
        "http": dispatch,
        "websocket": websocket.application,
        "lifespan": lifespan,
    }
)
