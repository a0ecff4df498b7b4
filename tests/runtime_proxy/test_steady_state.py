"""A request that follows others costs no query and no look at the forge."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.backends.signals import connection_created

from jobs.models import Job
from runtime_proxy.recent import Fresh, Recent
from tests.runtime_proxy.data_plane import DataPlane

RunSpace = Callable[..., Job]


@pytest.fixture
def queries() -> Iterator[list[str]]:
    """Every query of every connection that is opened from now on."""
    seen: list[str] = []

    def count(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        seen.append(sql)
        return execute(sql, params, many, context)

    def watch(connection: Any, **_: object) -> None:
        connection.execute_wrappers.append(count)

    connection_created.connect(watch)
    yield seen
    connection_created.disconnect(watch)


def test_the_steady_state_asks_the_database_nothing(
    data_plane: DataPlane, run_space: RunSpace, signed_in: Callable[[User], str], queries: list[str]
):
    run_space(visibility="private")
    cookie = signed_in(User.objects.create_user("alice"))
    assert data_plane.get("/run/alice/app/", Cookie=cookie).status == 200
    assert queries, "the first request asks"
    queries.clear()

    for number in range(20):
        assert data_plane.get(f"/run/alice/app/{number}", Cookie=cookie).status == 200

    assert queries == []


class TestRemembering:
    """`Recent`, without a database."""

    def run(self, work: Any) -> Any:
        return asyncio.run(work)

    def test_many_who_ask_at_once_cause_one_load(self):
        loads = 0

        async def load(key: str) -> Fresh[str]:
            nonlocal loads
            loads += 1
            await asyncio.sleep(0)
            return Fresh(key.upper(), 60)

        async def ask() -> list[str]:
            recent = Recent(load)
            return list(await asyncio.gather(*(recent.get("a") for _ in range(50))))

        assert self.run(ask()) == ["A"] * 50
        assert loads == 1

    def test_what_is_forgotten_during_its_load_is_not_remembered(self):
        answers = iter(["old", "new"])
        reading = asyncio.Event()
        forgotten = asyncio.Event()

        async def load(key: str) -> Fresh[str]:
            answer = next(answers)
            if answer == "old":
                reading.set()
                await forgotten.wait()
            return Fresh(answer, 60)

        async def ask() -> tuple[str, str]:
            recent = Recent(load)
            first = asyncio.create_task(recent.get("a"))
            await reading.wait()
            recent.forget(lambda key, value: True)
            forgotten.set()
            return await first, await recent.get("a")

        assert self.run(ask()) == ("old", "new")

    def test_an_answer_is_used_for_as_long_as_it_says(self):
        now = 0.0
        loads = 0

        async def load(key: str) -> Fresh[int]:
            nonlocal loads
            loads += 1
            return Fresh(loads, 10)

        async def ask() -> list[int]:
            nonlocal now
            recent = Recent(load, clock=lambda: now)
            seen = []
            for moment in (0.0, 9.9, 10.0, 19.9):
                now = moment
                seen.append(await recent.get("a"))
            return seen

        assert self.run(ask()) == [1, 1, 2, 2]

    def test_a_failure_is_not_remembered(self):
        outcomes: Iterator[Any] = iter([ValueError("away"), Fresh("back", 60)])

        async def load(key: str) -> Fresh[str]:
            outcome = next(outcomes)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        async def ask() -> str:
            recent = Recent(load)
            with pytest.raises(ValueError, match="away"):
                await recent.get("a")
            return await recent.get("a")

        assert self.run(ask()) == "back"

    def test_one_who_leaves_does_not_take_the_load_from_the_others(self):
        arrived = asyncio.Event()

        async def load(key: str) -> Fresh[str]:
            await arrived.wait()
            return Fresh("here", 60)

        async def ask() -> str:
            recent = Recent(load)
            leaving = asyncio.create_task(recent.get("a"))
            staying = asyncio.create_task(recent.get("a"))
            await asyncio.sleep(0)
            leaving.cancel()
            await asyncio.sleep(0)
            arrived.set()
            return await staying

        assert self.run(ask()) == "here"
