"""What happened, told to whoever is interested: in this process, in another, or nobody. PostgreSQL carries it.

`publish` inside the transaction that changed something: it is delivered on commit, and not at all on rollback.
A notice is a hint. Losing one costs at most one poll interval, never correctness: subscribers re-read the state.
Heartbeats, logs and health never publish: notifying commits are serialised by the database.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from django.db import connection

logger = logging.getLogger(__name__)

CHANNEL = "openface"
RESYNC = "resync"  # the listener was away: whatever you cached may be old

Callback = Callable[["Notice"], None]


@dataclass(frozen=True)
class Notice:
    """One thing that happened. `ids` are strings: job, space, worker; line, where the whole line is meant."""

    kind: str
    ids: dict[str, str] = field(default_factory=dict)


_lock = threading.Lock()
_subscribers: set[Callback] = set()


def publish(kind: str, **ids: object) -> None:
    """Tell all processes on commit. One statement."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_notify(%s, %s)", [CHANNEL, payload(kind, **ids)])


def payload(kind: str, **ids: object) -> str:
    """Return what `publish` sends, for a statement that writes and tells at once."""
    return json.dumps({"kind": kind, **{key: str(value) for key, value in ids.items() if value is not None}})


def subscribe(callback: Callback) -> Callable[[], None]:
    """Have `callback` called in the listener's thread for every notice; it must not block. Returns the undo."""
    with _lock:
        _subscribers.add(callback)

    def unsubscribe() -> None:
        with _lock:
            _subscribers.discard(callback)

    return unsubscribe


def deliver(text: str) -> None:
    """Hand a payload of the database to this process's subscribers. Called by the listener only."""
    try:
        content = json.loads(text)
        notice = Notice(content.pop("kind"), content)
    except (ValueError, KeyError, TypeError, AttributeError):
        logger.warning("notice not understood", extra={"action": "notice_not_understood"})
        return
    _call_all(notice)


def resync() -> None:
    """Tell this process's subscribers that notices may have been missed. Called by the listener after a reconnect."""
    _call_all(Notice(RESYNC))


def _call_all(notice: Notice) -> None:
    with _lock:
        subscribers = list(_subscribers)
    for callback in subscribers:
        try:
            callback(notice)
        except Exception:  # one subscriber must not silence the others
            logger.exception("notice subscriber failed", extra={"action": "notice_subscriber_failed"})


class Mailbox:
    """Notices for one coroutine. Equal notices that nobody has read yet are kept once: the reader re-reads state."""

    def __init__(self, kinds: Collection[str]) -> None:
        self._kinds = {*kinds, RESYNC}
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[tuple[str, tuple[tuple[str, str], ...]], Notice] = {}
        self._arrived = asyncio.Event()

    def post(self, notice: Notice) -> None:
        """Called in any thread."""
        if notice.kind in self._kinds and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._keep, notice)

    def _keep(self, notice: Notice) -> None:
        self._waiting[notice.kind, tuple(sorted(notice.ids.items()))] = notice
        self._arrived.set()

    async def get(self, timeout: float | None = None) -> Notice | None:
        """The oldest unread notice, or None when `timeout` seconds passed without one."""
        while not self._waiting:
            self._arrived.clear()
            try:
                await asyncio.wait_for(self._arrived.wait(), timeout)
            except TimeoutError:
                return None
        return self._waiting.pop(next(iter(self._waiting)))


@asynccontextmanager
async def mailbox(kinds: Collection[str]) -> AsyncIterator[Mailbox]:
    """Subscribe this coroutine to some kinds of notices (and to resync) for as long as the block lasts."""
    box = Mailbox(kinds)
    unsubscribe = subscribe(box.post)
    try:
        yield box
    finally:
        unsubscribe()
