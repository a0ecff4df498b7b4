"""Which images a worker would remove, and in which order."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from gpu_worker.garbage import EVERYTHING, OwnImage, make_room, survey

DAY, GB = 86400.0, 10**9


def image(name: str, *, days: float = 1, **facts: bool) -> OwnImage:
    """An image last used so many days ago."""
    used_at = time.time() - days * DAY
    return OwnImage(f"sha256:{name}", (f"openface/{name}:1",), name, "1" * 40, GB, used_at, **facts)


class Shelf:
    """Images without an engine. *stubborn* ones do not go."""

    def __init__(self, *images: OwnImage, stubborn: str = "") -> None:
        self.images, self._stubborn = list(images), stubborn
        self.asked = list[list[str]]()

    def all(self) -> list[OwnImage]:
        return list(self.images)

    def remove_all(self, images: Sequence[OwnImage], removed: Callable[[OwnImage], None]) -> None:
        self.asked.append(names(images))
        for image in images:
            if image.repository != self._stubborn:
                self.images.remove(image)
                removed(image)


def names(images: Sequence[OwnImage]) -> list[str]:
    return [image.repository for image in images]


def test_the_least_recently_used_goes_first_and_no_more_than_needed() -> None:
    shelf = Shelf(image("c", days=1), image("a", days=3), image("b", days=2))

    removed = make_room(shelf, lambda: (len(shelf.images) - 1) * GB)

    assert names(removed) == ["a", "b"]
    assert names(shelf.images) == ["c"]


def test_several_go_together_and_no_more_than_their_sizes_can_make_up_for() -> None:
    shelf = Shelf(*(image(name, days=9 - number) for number, name in enumerate("abcde")))
    missing = iter((2.5 * GB, 0.5 * GB, 0.0))  # the first three had less to themselves than their sizes
    told = list[tuple[int, int]]()

    make_room(shelf, lambda: next(missing), tell=lambda gone, of: told.append((gone, of)))

    assert shelf.asked == [["a", "b", "c"], ["d"]]
    assert told == [(1, 5), (2, 5), (3, 5), (4, 5)]


def test_where_all_have_to_go_the_engine_is_asked_once() -> None:
    shelf = Shelf(*(image(name) for name in "abc"))

    make_room(shelf, lambda: EVERYTHING)

    assert len(shelf.asked) == 1
    assert shelf.images == []


def test_with_enough_room_nothing_goes() -> None:
    shelf = Shelf(image("a"))

    assert make_room(shelf, lambda: 0.0) == []


def test_what_somebody_needs_stays_and_the_reason_is_told() -> None:
    shelf = Shelf(
        image("old", days=9),
        image("running", days=8, in_use=True),
        image("good", days=7, last_good=True),
        image("built", days=6),
        image("fresh", days=0),
    )

    found = survey(shelf, in_hand={"sha256:built"})

    assert names(list(found.removable)) == ["old"]
    assert {one.repository: why for one, why in found.kept} == {
        "running": "a container uses it",
        "good": "the last one of its Space that ran",
        "built": "a job is about to use it",
        "fresh": "it was made or used a moment ago",
    }
    assert found.wire()["removable"][0]["names"] == ["openface/old:1"]


def test_the_last_good_one_goes_only_where_that_is_asked_for() -> None:
    shelf = Shelf(image("good", last_good=True), image("running", last_good=True, in_use=True))

    assert make_room(shelf, lambda: EVERYTHING) == []
    assert names(make_room(shelf, lambda: EVERYTHING, last_good_too=True)) == ["good"]


def test_one_that_does_not_go_is_no_obstacle_to_the_next() -> None:
    shelf = Shelf(image("a", days=3), image("b", days=2), stubborn="a")

    assert names(make_room(shelf, lambda: EVERYTHING)) == ["b"]
