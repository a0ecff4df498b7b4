"""The control plane's entry point: `daphne openface.asgi:application`.

Streams that live long (worker signals, live pages) are plain ASGI applications beside Django: a Django view would hold
a pool connection and a thread for as long as each stream is open. So are the calls that workers repeat, for speed.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "openface.settings")
os.environ.setdefault("OPENFACE_DATABASE_POOL", "true")

from django.core.asgi import get_asgi_application

django_application = get_asgi_application()  # sets Django up: what follows imports models

from channels.routing import ProtocolTypeRouter  # noqa: E402
from daphne.cli import CommandLineInterface  # noqa: E402

from openface import pg_listener  # noqa: E402
from openface.body_limit import BodyLimit  # noqa: E402
from openface.bounded_daphne import BoundedServer  # noqa: E402
from openface.server_time import ServerTime  # noqa: E402
from runtime_proxy import portal_websocket  # noqa: E402
from spaces import live  # noqa: E402
from workers import signals  # noqa: E402
from workers.api import calls  # noqa: E402

# Django, Channels and plain ASGI each spell the types of one protocol differently.
Application = Callable[[Any, Any, Any], Awaitable[None]]

# Seconds that a thread may compute before another gets its turn. A page reads ten small answers from the database and
# queues again behind the workers' calls after each: with Python's 5 ms its p95 was a quarter longer while a large fleet
# beat; below 1 ms the switching itself costs more than it brings.
sys.setswitchinterval(0.002)

SIGNALS = re.compile(r"^/api/v1/workers/[0-9a-fA-F-]{36}/signals$")
LIVE = re.compile(r"^/live/")
CALLS = re.compile(calls.PATHS)


class ByPath:
    """The first application whose pattern matches the path, else Django."""

    def __init__(self, routes: Sequence[tuple[re.Pattern[str], Application]], default: Application) -> None:
        self._routes = routes
        self._default = default

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"] if scope["type"] == "http" else ""
        application = next((app for pattern, app in self._routes if pattern.match(path)), self._default)
        await application(scope, receive, send)


# daphne imports this module before it makes its server.
CommandLineInterface.server_class = BoundedServer

application = ProtocolTypeRouter(
    {
        "http": ServerTime(
            BodyLimit(
                ByPath(
                    [(SIGNALS, signals.application), (LIVE, live.application), (CALLS, calls.application)],
                    django_application,
                )
            )
        ),
        # A WebSocket client follows no redirect, so /run is served here too, with daphne's limits.
        "websocket": portal_websocket.application,
    }
)

pg_listener.start(stamps_alive=True)
