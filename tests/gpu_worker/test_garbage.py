"""Which images a worker would remove, and in which order."""

from __future__ import annotations

import time

from gpu_worker.garbage import OwnImage, make_room, survey

DAY = 86400.0


def image(name: str, *, days: float = 1, **facts: bool) -> OwnImage:
    """An image last used so many days ago."""
    used_at = time.time() - days * DAY
    return OwnImage(f"sha256:{name}", (f"openface/{name}:1",), name, "1" * 40, 10**9, used_at, **facts)


class Shelf:
    """Images without an engine. *stubborn* ones do not go."""

    def __init__(self, *images: OwnImage, stubborn: str = "") -> None:
        self.images, self._stubborn = list(images), stubborn

    def all(self) -> list[OwnImage]:
        return list(self.images)

    def remove(self, image: OwnImage) -> bool:
        if image.repository == self._stubborn:
            return False
        self.images.remove(image)
        return True


def names(images: list[OwnImage]) -> list[str]:
    return [image.repository for image in images]


def test_the_least_recently_used_goes_first_and_no_more_than_needed() -> None:
    shelf = Shelf(image("c", days=1), image("a", days=3), image("b", days=2))

    removed = make_room(shelf, lambda: len(shelf.images) < 2)

    assert names(removed) == ["a", "b"]
    assert names(shelf.images) == ["c"]


def test_with_enough_room_nothing_goes() -> None:
    shelf = Shelf(image("a"))

    assert make_room(shelf, lambda: True) == []


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

    assert make_room(shelf, lambda: False) == []
    assert names(make_room(shelf, lambda: False, last_good_too=True)) == ["good"]


def test_one_that_does_not_go_is_no_obstacle_to_the_next() -> None:
    shelf = Shelf(image("a", days=3), image("b", days=2), stubborn="a")

    assert names(make_room(shelf, lambda: False)) == ["b"]
