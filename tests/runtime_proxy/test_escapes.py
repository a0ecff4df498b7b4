"""What leaves an app's prefix is counted for its owner: by path, without a query per request, and within bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from django.db import OperationalError

from jobs.models import Job
from runtime_proxy import escapes
from runtime_proxy.escapes import Escapes
from spaces import escaped
from spaces.models import EscapedRequest
from tests.factories import SpaceFactory
from tests.runtime_proxy.data_plane import DataPlane, until
from tests.runtime_proxy.test_steady_state import queries as queries

RunSpace = Callable[..., Job]


def kept() -> dict[str, int]:
    return dict(EscapedRequest.objects.values_list("path", "count"))


@pytest.fixture
def leave(data_plane: DataPlane) -> Callable[..., None]:
    """Ask for a path as a page of alice/app does that forgot its prefix."""

    def ask(path: str, times: int = 1, *, page: str = "/run/alice/app/page") -> None:
        for _ in range(times):
            assert data_plane.get(path, Referer=f"http://{data_plane.host}{page}").status == 307

    return ask


def test_each_path_is_counted_without_its_query(
    run_space: RunSpace, leave: Callable[..., None], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(escapes, "FLUSH_SECONDS", 0.3)
    run_space()

    leave("/static/x.js?token=secret", 3)
    leave("/assets/y.css", page="/run/ALICE/App/")
    leave("/assets/z.css", page="/run/alice/nothing/")

    until(lambda: kept() == {"/static/x.js": 3, "/assets/y.css": 1})


def test_counting_asks_the_database_nothing(run_space: RunSpace, leave: Callable[..., None], queries: list[str]):
    run_space()
    leave("/static/x.js")
    queries.clear()

    leave("/static/x.js", 5)

    assert queries == []


def test_what_was_counted_last_is_told_when_the_server_stops(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    SpaceFactory.create(owner="alice", name="app")

    async def count() -> None:
        seen = Escapes()
        seen.note(b"/run/alice/app", b"/x?y")
        await seen.tell()
        await seen.tell()  # a second time there is nothing new

    asyncio.run(count())

    assert kept() == {"/x": 1}


def test_a_flood_of_made_up_referers_fills_nothing(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(escapes, "MOST_SPACES", 2)
    monkeypatch.setattr(escaped, "MOST_PATHS", 3)
    SpaceFactory.create(owner="alice", name="app")
    told: list[dict[str, dict[str, int]]] = []
    monkeypatch.setattr(escaped, "record", told.append)

    async def count() -> None:
        seen = Escapes()
        for number in range(100):
            seen.note(b"/run/alice/app", b"/%d" % (number % 5) + b"x" * 10_000)
            seen.note(b"/run/o/%d" % number, b"/\0")
        await seen.tell()

    asyncio.run(count())

    (seen,) = told
    assert list(seen) == ["alice/app", "o/0"]
    assert [len(path) for path in seen["alice/app"]] == [escaped.LONGEST_PATH] * 3
    assert list(seen["alice/app"].values()) == [20, 20, 20]


def test_a_database_that_is_away_costs_the_counts_alone(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:

    def away(seen: object) -> None:
        raise OperationalError("away")

    async def count() -> None:
        seen = Escapes()
        seen.note(b"/run/alice/app", b"/x")
        monkeypatch.setattr(escaped, "record", away)
        await seen.tell()
        monkeypatch.undo()
        seen.note(b"/run/alice/app", b"/y")
        await seen.tell()

    SpaceFactory.create(owner="alice", name="app")
    asyncio.run(count())

    assert kept() == {"/y": 1}


class TestKeeping:
    """What the table keeps."""

    pytestmark = pytest.mark.django_db

    def test_counts_add_up(self) -> None:
        SpaceFactory.create(owner="alice", name="app")
        escaped.record({"alice/app": {"/x": 2}, "alice/other": {"/y": 1}})
        escaped.record({"Alice/APP": {"/x": 3, "/z": 1}})

        assert kept() == {"/x": 5, "/z": 1}

    def test_one_space_may_be_spelt_in_two_ways(self) -> None:
        SpaceFactory.create(owner="alice", name="app")
        escaped.record({"alice/app": {"/x": 2}, "ALICE/app": {"/x": 1, "/y": 1}})

        assert kept() == {"/x": 3, "/y": 1}

    def test_the_most_frequent_paths_are_kept(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(escaped, "MOST_PATHS", 2)
        SpaceFactory.create(owner="alice", name="app")
        SpaceFactory.create(owner="alice", name="other")
        escaped.record({"alice/app": {"/often": 9, "/some": 2}, "alice/other": {"/rare": 1}})

        escaped.record({"alice/app": {"/more": 5}})

        assert kept() == {"/often": 9, "/more": 5, "/rare": 1}

    def test_two_processes_tell_at_once(self, transactional_db: None, at_once: Callable[..., list[object]]) -> None:
        SpaceFactory.create(owner="alice", name="app")
        paths = {f"/{number}": 1 for number in range(30)}

        outcomes = at_once([lambda: escaped.record({"alice/app": paths})] * 8)

        assert outcomes == [None] * 8
        assert set(kept().values()) == {8}
