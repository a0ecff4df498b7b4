"""Which paths an app's pages ask for outside its Space's prefix: counted by the data plane, shown to the owner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from django.db import connection, transaction
from django.db.models import Value
from django.db.models.functions import Concat, Lower

from spaces.models import EscapedRequest, Space

MOST_PATHS = 50  # kept of each Space: those asked for most
LONGEST_PATH = 200  # characters

# In one order, so that two processes do not wait for each other.
_ADD = """
INSERT INTO spaces_escapedrequest AS known (space_id, path, count)
SELECT * FROM unnest(%s::bigint[], %s::text[], %s::bigint[]) ORDER BY 1, 2
ON CONFLICT (space_id, path) DO UPDATE SET count = known.count + EXCLUDED.count, last_at = now()
"""
_PRUNE = """
DELETE FROM spaces_escapedrequest WHERE id IN (
    SELECT id FROM (
        SELECT id, row_number() OVER (PARTITION BY space_id ORDER BY count DESC, last_at DESC, id) AS place
        FROM spaces_escapedrequest WHERE space_id = ANY(%s)
    ) AS ranked WHERE place > %s
)
"""


def record(seen: Mapping[str, Mapping[str, int]]) -> None:
    """Add what was seen: by the Space's full name, in any case, how often each path. Names of no Space are left out.

    Three queries, however much it is.
    """
    wanted: dict[str, Counter[str]] = {}
    for name, paths in seen.items():
        wanted.setdefault(name.lower(), Counter()).update(paths)
    full = Lower(Concat("owner", Value("/"), "name"))
    spaces = Space.objects.annotate(full=full).filter(full__in=list(wanted)).values_list("pk", "full")
    found = {pk: wanted[name] for pk, name in spaces}
    rows = [(pk, path[:LONGEST_PATH], count) for pk, paths in found.items() for path, count in paths.items()]
    if not rows:
        return
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_ADD, [list(column) for column in zip(*rows, strict=True)])
        cursor.execute(_PRUNE, [list(found), MOST_PATHS])


def of(space: Space) -> Sequence[EscapedRequest]:
    """Return what left the Space's prefix, the most frequent first."""
    return list(space.escaped.all())


def forget(space: Space) -> None:
    """Begin to count anew."""
    space.escaped.all().delete()
