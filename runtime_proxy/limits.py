"""How much may be under way at once: by one visitor, and to one Space. Requests and WebSockets alike, per process.

So that one browser, or one app with a thousand waiting pages, leaves room for the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Literal, TypeVar

from django.conf import settings

from runtime_proxy.access import Visitor
from runtime_proxy.headers import Edge

Refusal = Literal["visitor", "space"]
K = TypeVar("K", bound=Hashable)


def caller(visitor: Visitor, edge: Edge) -> Hashable:
    """Who asks: the person where we know one, else the address, as a trusted proxy reports it.

    Many people may share an address: the limit leaves room for them.
    """
    if visitor.user_id is not None:
        return visitor.user_id
    before, comma, peer = edge.forwarded_for.rpartition(b",")  # who spoke to a trusted proxy comes before it
    return before.rpartition(b",")[2].strip() if comma else peer


class Limits:
    """What is under way. Each `take` that was not refused needs its `give`."""

    def __init__(self, *, per_visitor: int | None = None, per_space: int | None = None) -> None:
        """Without numbers of its own, those of the settings count; 0 is no limit."""
        self.per_visitor: int = settings.OPENFACE_RUN_MAX_PER_VISITOR if per_visitor is None else per_visitor
        self.per_space: int = settings.OPENFACE_RUN_MAX_PER_SPACE if per_space is None else per_space
        self._visitors: Counter[Hashable] = Counter()
        self._spaces: Counter[int] = Counter()

    def take(self, who: Hashable, space_id: int) -> Refusal | None:
        """Count one more; return which limit is in the way, and count nothing then."""
        if self._visitors[who] >= self.per_visitor > 0:
            return "visitor"
        if self._spaces[space_id] >= self.per_space > 0:
            return "space"
        self._visitors[who] += 1
        self._spaces[space_id] += 1
        return None

    def give(self, who: Hashable, space_id: int) -> None:
        """It is over."""
        _less(self._visitors, who)
        _less(self._spaces, space_id)

    @property
    def under_way(self) -> int:
        """Requests and WebSockets that are being served."""
        return self._spaces.total()


def _less(counter: Counter[K], key: K) -> None:
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]  # no entry stays behind for who has left
