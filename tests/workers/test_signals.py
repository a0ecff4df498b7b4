"""The signal stream, driven as ASGI drives it, over real notifications of the database."""

from __future__ import annotations

import json
from typing import Any

import pytest
from channels.db import database_sync_to_async
from django.db import OperationalError, connection

from jobs import notices
from jobs.lifecycle import request_stop
from tests.factories import JobFactory
from tests.workers.conftest import WireWorker
from tests.workers.streams import Stream, run, stream_of
from workers import signals, standing
from workers.models import Worker

pytestmark = pytest.mark.django_db(transaction=True)

Enroll = Any


@pytest.fixture
def worker(enroll: Enroll) -> WireWorker:
    found: WireWorker = enroll("here", local=True, gateway_url="http://127.0.0.1:18787")
    Worker.objects.update(gateway_status=Worker.Gateway.OK)
    return found


def test_a_change_for_everybody_wakes_every_worker(worker: WireWorker, enroll: Enroll, listener: None) -> None:
    other = enroll("gpu1")

    async def test() -> None:
        async with stream_of(worker) as one, stream_of(other) as two:
            await one.opened()
            await two.opened()
            await database_sync_to_async(notices.publish)("work")
            assert await one.next() == await two.next() == "event: work\ndata: {}\n\n"

    run(test)


def test_a_stop_names_the_lease_and_reaches_its_worker_only(worker: WireWorker, enroll: Enroll, listener: None) -> None:
    other = enroll("gpu1")
    job = JobFactory.create()
    claimed = worker.claim().json()

    async def test() -> None:
        async with stream_of(worker) as mine, stream_of(other) as others:
            await mine.opened()
            await others.opened()
            await database_sync_to_async(request_stop)(job.pk)
            await database_sync_to_async(notices.publish)("work")  # the first thing the other hears
            assert await mine.next() == f'event: stop\ndata: {{"lease": "{claimed["lease"]}"}}\n\n'
            assert await others.next() == "event: work\ndata: {}\n\n"

    run(test)


def test_a_changed_standing_is_told(worker: WireWorker, listener: None) -> None:
    async def test() -> None:
        async with stream_of(worker) as stream:
            await stream.opened()
            await database_sync_to_async(standing.drain)(worker.row_id, actor=None)
            assert await stream.next() == 'event: standing\ndata: {"standing": "draining"}\n\n'

    run(test)


def test_a_revoked_workers_stream_ends(worker: WireWorker, listener: None) -> None:
    async def test() -> None:
        async with stream_of(worker) as stream:
            await stream.opened()
            await database_sync_to_async(standing.revoke)(worker.row_id, actor=None)
            await stream.ended()
            assert stream.complete

    run(test)
    assert worker.heartbeat().json()["code"] == "credential_revoked"


def test_after_a_gap_of_the_listener_the_worker_is_told_all(worker: WireWorker) -> None:
    async def test() -> None:
        async with stream_of(worker) as stream:
            await stream.opened()
            notices.resync()
            assert await stream.next() == 'event: standing\ndata: {"standing": "open"}\n\n'
            assert await stream.next() == "event: work\ndata: {}\n\n"

    run(test)


def test_a_silent_stream_says_that_it_lives(worker: WireWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "COMMENT_EVERY_SECONDS", 0.05)

    async def test() -> None:
        async with stream_of(worker) as stream:
            await stream.opened()
            assert await stream.next() == ": keep-alive\n\n"
            assert stream.headers[b"content-type"].startswith(b"text/event-stream")

    run(test)


def test_a_stream_ends_when_the_database_is_away(
    worker: WireWorker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(worker_id: object) -> None:
        raise OperationalError("the connection is lost")

    async def test() -> None:
        async with stream_of(worker) as stream:
            await stream.opened()
            # The one place for a fake: the database cannot go away without taking the test with it.
            monkeypatch.setattr(signals, "_standing_of", away)
            notices.resync()
            await stream.ended()
            assert stream.complete

    run(test)
    assert "database unavailable" in caplog.text


def test_a_client_that_goes_leaves_nothing_behind(worker: WireWorker) -> None:
    before = len(notices._subscribers)

    async def test() -> None:
        async with stream_of(worker) as stream:
            await stream.opened()
            assert len(notices._subscribers) > before
        assert stream.task.done()

    run(test)
    assert len(notices._subscribers) == before


def test_open_streams_hold_no_connection(worker: WireWorker) -> None:
    async def test() -> None:
        streams = [stream_of(worker) for _ in range(50)]
        for stream in streams:
            await stream.__aenter__()
            await stream.opened()
        assert await database_sync_to_async(backends)() <= 2  # this question's own, and the test's
        for stream in streams:
            await stream.__aexit__()

    run(test)


def backends() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        return int(cursor.fetchone()[0])


@pytest.mark.parametrize(
    ("path", "header", "method", "status", "code"),
    [
        ("/api/v1/workers/{id}/signals", "", "GET", 401, "credential_invalid"),
        ("/api/v1/workers/{id}/signals", "Bearer ofw_nonsense", "GET", 401, "credential_invalid"),
        ("/api/v1/workers/{other}/signals", "Bearer {credential}", "GET", 403, "not_your_worker"),
        ("/api/v1/workers/{id}/signals", "Bearer {credential}", "POST", 405, "method_not_allowed"),
        (
            "/api/v1/workers/------------------------------------/signals",
            "Bearer {credential}",
            "GET",
            404,
            "not_found",
        ),
    ],
)
def test_strangers_are_refused(
    worker: WireWorker, enroll: Enroll, path: str, header: str, method: str, status: int, code: str
) -> None:
    facts = {"id": worker.id, "credential": worker.credential, "other": enroll("gpu1").id}

    async def test() -> None:
        headers = {"Authorization": header.format(**facts)} if header else {}
        async with Stream(path.format(**facts), headers, method) as stream:
            body = json.loads(await stream.next())
            assert (stream.status, body["code"]) == (status, code)
            await stream.ended()

    run(test)


def test_a_revoked_worker_gets_the_proof_here_too(worker: WireWorker) -> None:
    standing.revoke(worker.row_id, actor=None)

    async def test() -> None:
        async with stream_of(worker) as stream:
            body = json.loads(await stream.next())
            assert (stream.status, body["code"]) == (401, "credential_revoked")
            assert len(body["proof"]) == 64

    run(test)


def test_the_networks_that_may_call_hold_here_too(worker: WireWorker, settings: Any) -> None:
    settings.OPENFACE_GPU_WORKER_NETWORKS = ["10.0.0.0/8"]

    async def test() -> None:
        async with stream_of(worker) as stream:
            assert json.loads(await stream.next())["code"] == "address_not_allowed"

    run(test)
