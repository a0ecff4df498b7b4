"""Keep some of the disk free: remove own images when it gets short, and say so when that is not enough."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Collection
from pathlib import Path

from gpu_worker.disk import DiskFloor, gib
from gpu_worker.errors import EngineError
from gpu_worker.garbage import EVERYTHING, Images, OwnImage, make_room
from gpu_worker.machine import Picture

logger = logging.getLogger(__name__)

HEADROOM = 1.25  # times the floor: what a clean-up aims at, so that the next build does not cause another


class Housekeeping:
    """The disk of one worker. Only ``reason`` is quick; the rest waits for the engine."""

    def __init__(
        self, floor: DiskFloor, data_dir: Path, images: Images | None, in_hand: Callable[[], Collection[str]]
    ) -> None:
        """*images*: None where there are none (plain processes). *in_hand*: ids of those that jobs are about to use."""
        self._floor, self._data_dir, self._images, self._in_hand = floor, data_dir, images, in_hand
        self._lock = threading.Lock()

    def reason(self, picture: Picture) -> str | None:
        """Why no job is taken, from the newest look at the disk; None where there is room. Never waits."""
        return self._floor.shortage(self._free(picture))

    def tidy(self, picture: Picture) -> bool:
        """Where the disk is short, remove own images; whether any went, so that another look is worth it."""
        if self.reason(picture) is None or self._images is None:
            return False
        places = list(self._free(picture))
        return bool(self._remove(lambda: max(HEADROOM * self._floor.of(at) - _free(at) for at in places)))

    def empty(self) -> list[OwnImage]:
        """A build met a full disk: remove all own images that nobody needs now; what went."""
        return self._remove(lambda: EVERYTHING)

    def _remove(self, missing: Callable[[], float]) -> list[OwnImage]:
        if self._images is None:
            return []
        with self._lock:  # two would count the same image twice
            try:
                removed = make_room(self._images, missing, in_hand=self._in_hand())
            except EngineError as problem:
                logger.warning("no room made", extra={"action": "no_room_made", "problem": str(problem)})
                return []
        if removed:
            size = sum(image.size for image in removed)
            logger.warning(
                "disk short: removed own images that nobody needs now",
                extra={"action": "room_made", "images": len(removed), "at_most": gib(size)},
            )
        return removed

    def _free(self, picture: Picture) -> dict[Path, int | None]:
        """MiB free where jobs leave something, by place; None where that cannot be seen."""
        places: dict[Path, int | None] = {self._data_dir: picture.disk.get("data_free_mib")}
        if picture.engine.root:
            places[Path(picture.engine.root)] = picture.disk.get("docker_root_free_mib")
        return places


def _free(path: Path) -> float:
    """Bytes; endless where nobody can tell, so that nothing is removed for it."""
    try:
        stats = os.statvfs(path)
    except OSError:
        return float("inf")
    return stats.f_bavail * stats.f_frsize
