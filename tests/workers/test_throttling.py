"""Token buckets: a burst, then a rate; each worker its own; and settings that cannot be read are told at the start."""

from __future__ import annotations

from typing import Any

import pytest

from workers.api.throttling import BUCKETS_KEPT, Buckets, parse_rate
from workers.checks import rates


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_is_let_through_and_then_the_rate() -> None:
    clock = Clock()
    buckets = Buckets(clock)

    waits = [buckets.take("gpu1", rate="2/3") for _ in range(4)]
    assert waits == [0, 0, 0, 0.5]

    clock.now += 0.5
    assert [buckets.take("gpu1", rate="2/3") for _ in range(2)] == [0, 0.5]


def test_a_refused_call_costs_nothing() -> None:
    clock = Clock()
    buckets = Buckets(clock)
    buckets.take("gpu1", rate="1/1")

    for _ in range(100):
        assert buckets.take("gpu1", rate="1/1") == 1.0
    clock.now += 1
    assert buckets.take("gpu1", rate="1/1") == 0


def test_keys_do_not_share() -> None:
    buckets = Buckets(Clock())
    buckets.take("gpu1", rate="1/1")

    assert buckets.take("gpu2", rate="1/1") == 0


def test_a_long_silence_saves_no_more_than_a_burst() -> None:
    clock = Clock()
    buckets = Buckets(clock)
    buckets.take("gpu1", rate="1/2")
    clock.now += 1e6

    assert [bool(buckets.take("gpu1", rate="1/2")) for _ in range(3)] == [False, False, True]


def test_memory_is_bounded() -> None:
    clock = Clock()
    buckets = Buckets(clock)
    for n in range(BUCKETS_KEPT):
        buckets.take(f"gpu{n}", rate="1/2")
    clock.now += 10

    buckets.take("one more", rate="1/2")

    assert len(buckets._levels) == 1


@pytest.mark.parametrize("rate", ["", "fast", "0/5", "-1/5", "5/0.5", "1/x"])
def test_a_rate_that_cannot_be_read_is_an_error(rate: str) -> None:
    with pytest.raises(ValueError):
        parse_rate(rate)


def test_a_wrong_setting_is_told_by_a_check(settings: Any) -> None:
    assert rates(None) == []

    settings.OPENFACE_WORKER_RATE = "fast"
    settings.OPENFACE_ENROLL_PER_MINUTE = 0

    assert [problem.id for problem in rates(None)] == ["workers.E001", "workers.E002"]
