"""Live pages: a stream tells the state at once and after each change, to who may read, and holds nothing meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from pytest_django import Settings

from jobs import lifecycle, notices
from spaces.models import LocalRepository, Space
from tests.factories import UptimeFactory, WorkerFactory
from tests.spaces.pages import runs
from tests.spaces.pages.conftest import signed_in
from tests.spaces.pages.event_stream import EventStream
from tests.spaces.pages.server import POOL, Portal, serve
from tests.spaces.repositories import make_space
from workers.models import Worker

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(180)]

STREAMS = 200


@pytest.fixture(scope="module")
def portal(django_db_setup: None, postgres_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Portal]:
    yield from serve(postgres_url, tmp_path_factory.mktemp("portal"))


@pytest.fixture(autouse=True)
def repositories(settings: Settings, portal: Portal) -> Path:
    """Here and in the portal the same repositories."""
    settings.OPENFACE_REPOSITORIES_DIR = portal.repositories
    return portal.repositories


@pytest.fixture
def worker(transactional_db: None) -> Worker:
    UptimeFactory.create()
    return WorkerFactory.create(name="cpu1")


@pytest.fixture
def space(transactional_db: None) -> Space:
    return make_space("alice/notes", visibility="private")


def session_of(client: Client) -> str:
    return str(client.cookies["openface_session"].value)


def test_who_may_not_read_is_not_told_that_it_exists(
    portal: Portal, space: Space, worker: Worker, carol: Client
) -> None:
    runs.submit(space)
    lease = runs.claim(worker).lease
    for path in (
        "/live/spaces/alice/notes/",
        f"/live/spaces/alice/notes/log?stream=run&lease={lease.pk}",
        "/live/spaces/alice/absent/",
        "/live/spaces/alice/",
        "/live/",
    ):
        for session in ("", session_of(carol), "nonsense"):
            with EventStream(portal.port, path, session=session) as stream:
                assert stream.status == 404, path


def test_the_state_comes_at_once_and_after_each_change(
    portal: Portal, space: Space, worker: Worker, alice: Client
) -> None:
    with EventStream(portal.port, "/live/spaces/alice/notes/", session=session_of(alice)) as stream:
        assert stream.headers["Content-Type"].startswith("text/event-stream")
        stream.wait_for("state", state="")
        job = runs.submit(space)
        stream.wait_for("state", state="queued", job=str(job.pk))
        attempt = runs.claim(worker)
        stream.wait_for("state", state="leased", worker="cpu1", lease=str(attempt.lease.pk))
        attempt.to_running()
        assert stream.wait_for("state", state="running")["revision"] == space.head_revision
        lifecycle.request_stop(job.pk)
        stream.wait_for("state", state="stopping")


def test_a_right_that_is_taken_away_ends_the_stream(portal: Portal, space: Space, carol: Client) -> None:
    LocalRepository.objects.update(visibility="public")
    with EventStream(portal.port, "/live/spaces/alice/notes/", session=session_of(carol)) as stream:
        stream.wait_for("state", state="")
        LocalRepository.objects.update(visibility="private")
        notices.publish("access", space=space.pk)
        stream.wait_for("gone")
        assert list(stream.events()) == []


def test_a_closed_account_ends_the_stream(portal: Portal, space: Space, owner: User) -> None:
    with EventStream(portal.port, "/live/spaces/alice/notes/", session=session_of(signed_in(owner))) as stream:
        stream.wait_for("state", state="")
        User.objects.filter(pk=owner.pk).update(is_active=False)
        notices.publish("access", space=space.pk)
        stream.wait_for("gone")


def test_a_log_arrives_line_by_line_and_its_open_line_is_replaced(
    portal: Portal, space: Space, worker: Worker, alice: Client
) -> None:
    runs.submit(space)
    attempt = runs.claim(worker).to_running().write("run", "one\ntw")
    path = f"/live/spaces/alice/notes/log?stream=run&lease={attempt.lease.pk}"
    with EventStream(portal.port, path, session=session_of(alice)) as stream:
        first = stream.wait_for("lines")
        assert first["closed"] == "<li><span></span><span>one</span></li>"
        assert first["open"] == "<li data-open><span></span><span>tw</span></li>"
        attempt.write("run", "o\n<b>three</b>\n")
        assert stream.wait_for("lines", open="")["closed"] == (
            "<li><span></span><span>two</span></li><li><span></span><span>&lt;b&gt;three&lt;/b&gt;</span></li>"
        )


def test_a_broken_connection_goes_on_without_gap_or_repetition(
    portal: Portal, space: Space, worker: Worker, alice: Client
) -> None:
    runs.submit(space)
    attempt = runs.claim(worker).to_running()
    path = f"/live/spaces/alice/notes/log?stream=run&lease={attempt.lease.pk}"
    session, last, read = session_of(alice), "", ""
    for number in range(5):
        attempt.write("run", f"日本語 {number}\nhalf of ")
        with EventStream(portal.port, path, session=session, last_event_id=last) as stream:
            read += stream.wait_for("lines")["closed"]
            last = stream.last_id
    shown = [line.split("</span>")[0] for line in read.split("<span></span><span>")[1:]]
    assert shown == ["日本語 0", *[f"half of 日本語 {number}" for number in range(1, 5)]]


def test_an_endless_progress_bar_does_not_hold_the_log_up(
    portal: Portal, space: Space, worker: Worker, alice: Client
) -> None:
    runs.submit(space)
    attempt = runs.claim(worker).to_running()
    for begin in range(0, 20_000, 4_000):
        attempt.write("run", "".join(f"{number}/20000\r" for number in range(begin, begin + 4_000)))
    attempt.write("run", "\ndone\n")
    path = f"/live/spaces/alice/notes/log?stream=run&lease={attempt.lease.pk}"
    with EventStream(portal.port, path, session=session_of(alice)) as stream:
        for _, data in stream.events():
            if "done" in data["closed"]:
                assert "19999/20000" in data["closed"]
                assert "19998/20000" not in data["closed"]
                return
    pytest.fail("the log ended before its end")


def test_the_log_of_an_ended_attempt_ends(portal: Portal, space: Space, worker: Worker, alice: Client) -> None:
    runs.submit(space)
    attempt = runs.claim(worker).to_running().write("run", "one\nunfinished")
    attempt.report("exited", code=1)
    path = f"/live/spaces/alice/notes/log?stream=run&lease={attempt.lease.pk}"
    with EventStream(portal.port, path, session=session_of(alice)) as stream:
        assert [name for name, _ in stream.events()] == ["lines", "end"]


@pytest.mark.parametrize("query", ["stream=nothing", "stream=run&offset=-1", "stream=run&offset=1e9"])
def test_bad_questions_are_answered_with_a_status(
    portal: Portal, space: Space, worker: Worker, alice: Client, query: str
) -> None:
    runs.submit(space)
    lease = runs.claim(worker).lease
    path = f"/live/spaces/alice/notes/log?lease={lease.pk}&{query}"
    with EventStream(portal.port, path, session=session_of(alice)) as stream:
        assert stream.status in (400, 404)


def test_two_hundred_open_streams_hold_no_connection(
    portal: Portal, space: Space, worker: Worker, alice: Client, database_url: str
) -> None:
    runs.submit(space)
    session = session_of(alice)
    with ExitStack() as stack:
        streams = [
            stack.enter_context(EventStream(portal.port, "/live/spaces/alice/notes/", session=session))
            for _ in range(STREAMS)
        ]
        for stream in streams:
            stream.wait_for("state", state="queued")
        assert backends(database_url) <= POOL + 1
        arrived = [
            threading.Thread(target=stream.wait_for, args=("state",), kwargs={"state": "leased"}) for stream in streams
        ]
        for thread in arrived:
            thread.start()
        runs.claim(worker)
        for thread in arrived:
            thread.join(timeout=60)
        assert not any(thread.is_alive() for thread in arrived)
        assert backends(database_url) <= POOL + 1


def backends(database_url: str) -> int:
    """How many connections the portal holds: all but the test's own."""
    with psycopg.connect(database_url) as asking:
        row = asking.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchone()
    assert row is not None
    return int(row[0]) - (connection.connection is not None)
