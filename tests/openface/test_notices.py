"""Notices: on commit, in every process, and a hint only."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Iterator

import psycopg
import pytest
from django.db import connection, transaction
from pytest_django import Settings

from jobs import notices
from jobs.notices import Notice
from openface import pg_listener

pytestmark = pytest.mark.django_db(transaction=True)

PATIENCE_SECONDS = 10.0


@pytest.fixture
def heard(database_url: str, settings: Settings) -> Iterator[queue.Queue[Notice]]:
    """What the listener of this process delivers; connected before the test begins."""
    settings.OPENFACE_DIRECT_DATABASE_URL = database_url
    inbox: queue.Queue[Notice] = queue.Queue()
    unsubscribe = notices.subscribe(inbox.put)
    threading.Thread(target=_listen_until_closed, daemon=True).start()
    assert inbox.get(timeout=PATIENCE_SECONDS).kind == notices.RESYNC
    yield inbox
    unsubscribe()
    _end_listeners()


def _listen_until_closed() -> None:
    with contextlib.suppress(psycopg.Error):
        pg_listener._listen()


def _end_listeners() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%%' OR query = 'SELECT 1'"
        )


def test_a_notice_arrives_after_the_commit(heard: queue.Queue[Notice]) -> None:
    with transaction.atomic():
        notices.publish("job", job="j1", worker=None)
        assert heard.empty()
    assert heard.get(timeout=PATIENCE_SECONDS) == Notice("job", {"job": "j1"})


def test_a_notice_of_a_rolled_back_transaction_never_arrives(heard: queue.Queue[Notice]) -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        notices.publish("job", job="never")
        raise ZeroDivisionError
    notices.publish("work")
    assert heard.get(timeout=PATIENCE_SECONDS) == Notice("work", {})


def test_a_mailbox_wakes_its_coroutine_and_keeps_equal_notices_once() -> None:
    async def scenario() -> list[Notice | None]:
        async with notices.mailbox({"job"}) as box:
            for _ in range(3):
                notices.deliver('{"kind": "job", "job": "a"}')
            notices.deliver('{"kind": "work"}')  # not asked for
            notices.resync()
            first = await box.get(timeout=PATIENCE_SECONDS)
            second = await box.get(timeout=PATIENCE_SECONDS)
            nothing = await box.get(timeout=0)
            return [first, second, nothing]

    assert asyncio.run(scenario()) == [Notice("job", {"job": "a"}), Notice("resync", {}), None]


def test_a_subscriber_that_fails_does_not_silence_the_others(caplog: pytest.LogCaptureFixture) -> None:
    got: list[Notice] = []

    def bad(notice: Notice) -> None:
        raise RuntimeError("subscriber")

    undo = [notices.subscribe(bad), notices.subscribe(got.append)]
    try:
        notices.deliver('{"kind": "work"}')
    finally:
        for each in undo:
            each()
    assert got == [Notice("work", {})]
    assert "subscriber failed" in caplog.text


def test_nonsense_from_the_channel_is_logged_and_dropped(caplog: pytest.LogCaptureFixture) -> None:
    for payload in ("", "{", "[]", '{"no": "kind"}'):
        notices.deliver(payload)
    assert caplog.text.count("not understood") == 4
