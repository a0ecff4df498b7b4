"""Which of this worker's images may go, and in which order: the least recently used first.

Kept are images that a container or a job in hand uses, the last one of each Space that came to run, and what was made a
moment ago. What is not this worker's own is not even looked at.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

logger = logging.getLogger(__name__)

MOMENT_SECONDS = 600.0  # between the end of a build and the journal's next line nothing else says that it is wanted
MIB = 1024 * 1024
EVERYTHING = float("inf")  # bytes that are missing for as long as there is anything to remove


@dataclass(frozen=True)
class OwnImage:
    id: str
    names: tuple[str, ...]
    repository: str
    """The forge's id of it."""
    revision: str
    size: int
    """Bytes, shared layers included: what its removal frees at most."""
    used_at: float
    """When it was made, or a job last started from it: seconds since 1970."""
    in_use: bool = False
    last_good: bool = False

    def wire(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "names": list(self.names),
            "repository": self.repository,
            "revision": self.revision,
            "mib": self.size // MIB,
            "used_at": int(self.used_at),
        }


class Images(Protocol):
    def all(self) -> list[OwnImage]: ...

    def remove_all(self, images: Sequence[OwnImage], removed: Callable[[OwnImage], None]) -> None: ...


@dataclass(frozen=True)
class Survey:
    """What a clean-up would do."""

    removable: tuple[OwnImage, ...]
    """In the order in which they would go."""
    kept: tuple[tuple[OwnImage, str], ...]
    """With the reason."""

    def wire(self) -> dict[str, Any]:
        return {
            "removable": [image.wire() for image in self.removable],
            "kept": [{**image.wire(), "because": why} for image, why in self.kept],
        }


def survey(
    store: Images, *, in_hand: Collection[str] = (), last_good_too: bool = False, fresh_too: bool = False
) -> Survey:
    """What could be removed now. *in_hand*: ids that a job is about to use. Raises EngineError.

    *fresh_too*: also what was made or used a moment ago; for when no worker runs any more.
    """
    now = time.time()
    removable, kept = [], []
    for image in sorted(store.all(), key=lambda image: image.used_at):
        why = _why_kept(image, in_hand, None if fresh_too else now, last_good_too)
        if why is None:
            removable.append(image)
        else:
            kept.append((image, why))
    return Survey(tuple(removable), tuple(kept))


def make_room(
    store: Images,
    missing: Callable[[], float],
    *,
    in_hand: Collection[str] = (),
    last_good_too: bool = False,
    fresh_too: bool = False,
    tell: Callable[[int, int], None] = lambda gone, of: None,
) -> list[OwnImage]:
    """Remove images until no bytes are *missing* or nothing more may go; what was removed. Raises EngineError.

    Several at a time, because the engine takes seconds to find what of its build cache only they had; never more than
    have to go, since none frees more than its size. *tell* hears after each how many are gone, of how many at most.
    """
    removed: list[OwnImage] = []
    left = list(survey(store, in_hand=in_hand, last_good_too=last_good_too, fresh_too=fresh_too).removable)
    most = len(left)

    def note(image: OwnImage) -> None:
        removed.append(image)
        tell(len(removed), most)

    while left and (needed := missing()) > 0:
        together: list[OwnImage] = []
        while left and needed > 0:
            together.append(left.pop(0))
            needed -= together[-1].size
        store.remove_all(together, note)
    return removed


def _why_kept(image: OwnImage, in_hand: Collection[str], now: float | None, last_good_too: bool) -> str | None:
    if image.in_use:
        return "a container uses it"
    if image.id in in_hand:
        return "a job is about to use it"
    if image.last_good and not last_good_too:
        return "the last one of its Space that ran"
    if now is not None and now - image.used_at < MOMENT_SECONDS:
        return "it was made or used a moment ago"
    return None
