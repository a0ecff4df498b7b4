"""Requests that left their app's prefix, counted in memory and told to the database once a minute.

A request costs a look into a dictionary and never a query. Anybody may claim a Referer, so what is kept is bounded: of
a flood some is counted, and the rest is not.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

from django.db import Error as DatabaseError
from psycopg_pool import PoolTimeout

from runtime_proxy.database import in_database
from spaces import escaped

FLUSH_SECONDS = 60.0
MOST_SPACES = 500  # in one minute

logger = logging.getLogger(__name__)


class Escapes:
    """What was seen since it was last told. For one event loop."""

    def __init__(self) -> None:
        self._seen: dict[str, Counter[str]] = {}
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._telling: asyncio.Task[None] | None = None

    def note(self, prefix: bytes, path: bytes) -> None:
        """Count a request for `path` by a page of the app below `prefix`, as in `/run/owner/name`."""
        space = prefix.decode("latin-1").removeprefix("/run/")
        paths = self._seen.get(space)
        if paths is None:
            if len(self._seen) >= MOST_SPACES:
                return
            paths = self._seen[space] = Counter()
        text = path.partition(b"?")[0][: escaped.LONGEST_PATH].decode("latin-1").replace("\0", "")
        if text in paths or len(paths) < escaped.MOST_PATHS:
            paths[text] += 1
        if self._timer is None:
            self._timer = self._loop.call_later(FLUSH_SECONDS, self._begin)

    async def tell(self) -> None:
        """Write what was seen. A database that is away costs these counts, and nothing else."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        seen, self._seen = self._seen, {}
        if not seen:
            return
        try:
            await in_database(escaped.record, seen)
        except (DatabaseError, PoolTimeout):
            logger.warning("escaped requests not counted", extra={"action": "escapes_lost"}, exc_info=True)

    def _begin(self) -> None:
        self._timer = None
        self._telling = asyncio.create_task(self.tell())
