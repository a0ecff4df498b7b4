"""A long list of reasons, folded: the nearest few as they are, the rest behind a click, equal ones told once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from django.utils.translation import gettext as _

from spaces.why import Row

SHOWN = 8  # what a person reads before he looks for a summary
ALIKE = 3  # so many equal sentences are told as one
NAMES = 12  # workers named in a group
BEHIND = 60  # rows behind the click: nobody reads a thousand, and a page of them is slow


@dataclass(frozen=True)
class Folded:
    """`first` stands there; `rest` is behind a click that says how many rows it is of; `untold` are not drawn."""

    first: list[Row]
    rest: list[Row]
    more: int = 0
    untold: int = 0


def folded(rows: Sequence[Row]) -> Folded:
    """Fold rows that stand in the order of nearness. Where only one would be folded away, nothing is."""
    if len(rows) <= SHOWN + 1:
        return Folded(list(rows), [])
    behind = rows[SHOWN:]
    told = _grouped(behind)
    return Folded(list(rows[:SHOWN]), told[:BEHIND], more=len(behind), untold=len(told[BEHIND:]))


def _grouped(rows: Sequence[Row]) -> list[Row]:
    """The rows with one in place of all that say the same, at the place of the first of them."""
    alike: dict[tuple[str, str, bool, bool], list[Row]] = {}
    for row in rows:
        alike.setdefault((row.code, row.sentence, row.simulated, bool(row.gpu)), []).append(row)
    told = []
    for same in alike.values():
        told += [_one_for(same)] if len(same) >= ALIKE else same
    return told


def _one_for(rows: list[Row]) -> Row:
    """One row for all of these: how many, whose they are, and what they say. A bar or a time is of one GPU only."""
    workers = list(dict.fromkeys(row.worker for row in rows))
    gpus = _("%(count)d GPUs") % {"count": len(rows)} if rows[0].gpu else ""
    one = replace(rows[0], gpu="", group=gpus, detail="", segments=[], near=False)
    if len(workers) == 1:
        return one
    names = ", ".join(workers[:NAMES])
    if len(workers) > NAMES:
        names = _("%(names)s and %(count)d more") % {"names": names, "count": len(workers) - NAMES}
    return replace(one, worker=_("%(count)d workers") % {"count": len(workers)}, names=names)
