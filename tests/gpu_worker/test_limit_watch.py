"""What an app meets at its limits is told, also where the engine breaks off in the middle of being asked."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import APIError

from gpu_worker.containers.limit_watch import LimitWatch
from gpu_worker.errors import EngineError


class Engine:
    """As much of an engine as is asked: one process killed for memory, and figures that come or do not."""

    def __init__(self) -> None:
        self.breaks = False
        self.kills = [time.time_ns()]
        self.api = SimpleNamespace(events=self._events, stats=self._stats)

    def _events(self, **_: Any) -> Iterator[dict[str, int]]:
        return iter([{"timeNano": moment} for moment in self.kills])

    def _stats(self, *_: Any, **__: Any) -> dict[str, Any]:
        if self.breaks:
            raise APIError("timed out")
        return {"memory_stats": {"limit": 48 * 1024 * 1024}}


@pytest.fixture
def engine() -> Engine:
    return Engine()


def test_a_kill_is_told_once(engine: Engine) -> None:
    watch = LimitWatch(lambda: engine, "c")  # type: ignore[arg-type]  # what it asks is there

    assert watch.news() == ["Out of memory: a process of the app was killed at its limit of 48 MiB."]
    assert watch.news() == []


def test_a_kill_is_told_when_the_engine_answers_again(engine: Engine) -> None:
    watch = LimitWatch(lambda: engine, "c")  # type: ignore[arg-type]
    engine.breaks = True
    with pytest.raises(EngineError):
        watch.news()

    engine.breaks = False
    engine.kills.append(time.time_ns())

    assert watch.news() == ["Out of memory: a process of the app was killed at its limit of 48 MiB (2 times)."]
