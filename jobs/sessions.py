"""Which session of a worker is its newest: each register counts one up, and later calls carry their number."""

from __future__ import annotations

# How far ahead of our row a call may be: the restarts of a worker since the copy of the database was made that we run
# on. Bounded, so that one absurd number cannot use up the column.
MOST_AHEAD = 10_000


def is_current(known: int, told: int) -> bool:
    """Whether a call with the session `told` comes from the newest process of a worker whose row says `known`.

    A number ahead of ours is: then a restored older database is what is behind, and must not send a whole fleet away.
    """
    return known <= told <= known + MOST_AHEAD
