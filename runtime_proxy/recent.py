"""Answers of the database that are remembered for a moment, so that a proxied request costs none.

One load at a time per key, however many ask. What is forgotten while a load is under way is not remembered when that
load ends: it may have read what is no longer true.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

MAX_ENTRIES = 20_000  # a visitor who tries names cannot fill the memory; the oldest go


@dataclass(frozen=True, slots=True)
class Fresh(Generic[V]):
    """A value and for how many seconds it may be used; 0 uses it once."""

    value: V
    seconds: float


class Recent(Generic[K, V]):
    """Remembers what `load` returned, per key, for as long as it says. For one event loop."""

    def __init__(
        self, load: Callable[[K], Awaitable[Fresh[V]]], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._load = load
        self._clock = clock
        self._entries: OrderedDict[K, tuple[V, float]] = OrderedDict()
        self._flights: dict[K, asyncio.Task[V]] = {}

    async def get(self, key: K) -> V:
        """Return the remembered value, or load it. Raises what the load raises; failures are not remembered."""
        entry = self._entries.get(key)
        if entry is not None and entry[1] > self._clock():
            return entry[0]
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = asyncio.create_task(self._fly(key))
            flight.add_done_callback(_retrieve)
        return await asyncio.shield(flight)  # one visitor who leaves must not cancel the others' load

    def forget(self, applies: Callable[[K, V], bool] | None = None) -> None:
        """Forget the entries for which `applies`, or all; loads under way are not trusted either."""
        self._flights.clear()
        if applies is None:
            self._entries.clear()
            return
        for key in [key for key, (value, _) in self._entries.items() if applies(key, value)]:
            del self._entries[key]

    async def _fly(self, key: K) -> V:
        task = asyncio.current_task()
        try:
            fresh = await self._load(key)
            if self._flights.get(key) is task and fresh.seconds > 0:
                self._entries[key] = (fresh.value, self._clock() + fresh.seconds)
                self._entries.move_to_end(key)
                if len(self._entries) > MAX_ENTRIES:
                    self._entries.popitem(last=False)
            return fresh.value
        finally:
            if self._flights.get(key) is task:
                del self._flights[key]


def _retrieve(task: asyncio.Task[V]) -> None:
    """Keep asyncio from complaining about a failure that every waiter has left behind."""
    if not task.cancelled():
        task.exception()
