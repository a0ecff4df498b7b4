"""A request that is no call of the API: an answer with a code, early, and nothing lost."""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

import pytest
from django.db import DataError, OperationalError
from django.test import Client

from jobs.models import Job
from tests.workers.conftest import GPU
from tests.workers.taken_jobs import with_a_job
from workers import registry
from workers.api.throttling import BUCKETS

pytestmark = pytest.mark.django_db
Enroll = Any
BEAT = {"session": 1, "beat": 5, "accepting": True, "gpus": [GPU], "holds": []}
LEASE = "7be19a44-0c5d-4d2b-bf13-98e6a1c0d572"
MALFORMED = {
    "half": '{"session": 1',
    "text": "hello",
    "not UTF-8": b'{"session": "\xff"}',
    "NaN": '{"session": NaN}',
    "Infinity": '{"session": -Infinity}',
    "a number of 10,000 digits": '{"session": ' + "9" * 10_000 + "}",
    "deep": "[" * 100_000 + "]" * 100_000,
    "UTF-16": '{"session": 1}'.encode("utf-16"),
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED)
def test_a_body_that_is_not_json_is_400(enroll: Enroll, body: str | bytes) -> None:
    worker = enroll()

    answer = worker.post(f"{worker.id}/heartbeat", body)

    assert (answer.status_code, answer.json()["code"]) == (400, "malformed")
    assert worker.heartbeat().status_code == 200


@pytest.mark.parametrize("body", ["null", "[]", "5", '"text"', "true"])
def test_json_that_is_no_object_is_422(enroll: Enroll, body: str) -> None:
    worker = enroll()

    answer = worker.post(f"{worker.id}/heartbeat", body)

    assert (answer.status_code, list(answer.json()["errors"])) == (422, ["body"])


def test_another_content_type_is_400_with_a_sentence(enroll: Enroll) -> None:
    worker = enroll()

    answer = worker.client.post(
        f"/api/v1/workers/{worker.id}/heartbeat",
        {"session": 1},
        headers={"Authorization": f"Bearer {worker.credential}"},
    )

    assert (answer.status_code, answer.json()["code"]) == (400, "malformed")
    assert "application/json" in answer.json()["detail"]


def test_a_body_that_is_too_large_is_413(enroll: Enroll) -> None:
    worker, claimed = with_a_job(enroll)

    heartbeat = worker.post(f"{worker.id}/heartbeat", json.dumps({"x": "y" * (256 * 1024)}))
    events = worker.events(claimed, [], [{"stream": "run", "offset": 0, "text": "y" * (300 * 1024)}])
    too_much = worker.events(claimed, [], [{"stream": "run", "offset": 0, "text": "y" * (1024 * 1024)}])

    assert (heartbeat.status_code, heartbeat.json()["code"]) == (413, "too_large")
    assert "256 KiB" in heartbeat.json()["detail"]
    assert events.status_code == 200
    assert (too_much.status_code, too_much.json()["code"]) == (413, "too_large")


def test_a_body_without_an_announced_length_is_bounded_too(enroll: Enroll) -> None:
    from workers.api.errors import TooLarge
    from workers.api.parsing import StrictJSONParser

    class Endless:
        def read(self, size: int) -> bytes:
            return b" " * size

    with pytest.raises(TooLarge):
        StrictJSONParser().parse(Endless())  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["", "/x", "/not-a-uuid/heartbeat", f"/{LEASE}/jobs/x/events", f"/{LEASE}/secrets"])
def test_unknown_paths_are_404_in_the_apis_own_shape(path: str) -> None:
    for method in ("get", "post", "delete"):
        answer = getattr(Client(), method)(f"/api/v1/workers{path}")
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_a_wrong_method_is_405(enroll: Enroll) -> None:
    worker = enroll()

    answer = worker.client.get(
        f"/api/v1/workers/{worker.id}/heartbeat", headers={"Authorization": f"Bearer {worker.credential}"}
    )

    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")


def test_an_accept_header_is_no_reason_to_refuse(enroll: Enroll) -> None:
    worker = enroll()

    answer = worker.post(f"{worker.id}/heartbeat", BEAT, Accept="text/html")

    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/json")


@pytest.mark.parametrize(
    ("failure", "status", "code"),
    [
        (OperationalError("couldn't get a connection after 5.00 sec"), 503, "unavailable"),
        (DataError("value out of range"), 422, "invalid"),
    ],
)
def test_a_database_in_trouble_is_told_without_a_trace(
    enroll: Enroll, failure: Exception, status: int, code: str
) -> None:
    worker = enroll()

    # The one place where a fake is right: a pool that is empty cannot be had on demand.
    with mock.patch.object(registry, "note_alive", side_effect=failure):
        answer = worker.heartbeat()

    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert status != 503 or int(answer.headers["Retry-After"]) >= 1
    assert "Traceback" not in answer.content.decode()


def test_calls_are_limited_per_worker_and_heartbeats_apart(enroll: Enroll, settings: Any) -> None:
    worker, other = enroll("gpu1"), enroll("gpu2")
    settings.OPENFACE_WORKER_RATE = "0.001/2"
    BUCKETS._levels.clear()

    answers = [worker.claim() for _ in range(4)]

    assert [answer.status_code for answer in answers] == [204, 204, 429, 429]
    assert answers[3].json()["code"] == "throttled"
    assert int(answers[3].headers["Retry-After"]) > 1
    assert worker.heartbeat().status_code == 200
    assert other.claim().status_code == 204


def test_nothing_was_lost(enroll: Enroll) -> None:
    worker, claimed = with_a_job(enroll)
    for body in MALFORMED.values():
        worker.post(f"{worker.id}/jobs/{claimed['id']}/events", body)

    answer = worker.events(claimed, [{"seq": 1, "kind": "building"}])

    assert answer.status_code == 200
    assert Job.objects.get().state == "building"
