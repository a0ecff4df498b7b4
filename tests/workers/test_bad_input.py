"""Whatever is sent: an answer with a code and the field's name, never a 500, and nothing lost."""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

import pytest
from django.db import DataError, OperationalError
from django.test import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.models import Job, JobEvent
from tests.factories import JobFactory
from tests.workers.conftest import GPU, WireWorker, golden
from workers import registry
from workers.api.throttling import BUCKETS
from workers.models import Gpu, Worker

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

# (path in the body, value, the field that the answer must name)
WRONG: list[tuple[str, Any, str]] = [
    ("session", "1", "session"),
    ("session", 1.0, "session"),
    ("session", True, "session"),
    ("session", None, "session"),
    ("session", 0, "session"),
    ("session", -1, "session"),
    ("session", 10**30, "session"),
    ("beat", 10**30, "beat"),
    ("accepting", "true", "accepting"),
    ("accepting", 1, "accepting"),
    ("gpus", {}, "gpus"),
    ("gpus", "GPU", "gpus"),
    ("gpus", None, "gpus"),
    ("gpus", [1], "gpus.0"),
    ("gpus", [GPU] * 257, "gpus"),
    ("gpus.0.uuid", "", "gpus.0.uuid"),
    ("gpus.0.uuid", None, "gpus.0.uuid"),
    ("gpus.0.uuid", 5, "gpus.0.uuid"),
    ("gpus.0.uuid", "x" * 129, "gpus.0.uuid"),
    ("gpus.0.uuid", "GPU-\x00", "gpus.0.uuid"),
    ("gpus.0.uuid", "GPU-\ud800", "gpus.0.uuid"),
    ("gpus", [None], "gpus.0"),
    ("gpus.0.ours", {}, "gpus.0.ours"),
    ("gpus.0.ours", [None], "gpus.0.ours.0"),
    ("gpus.0.ours", [{"lease": "x"}], "gpus.0.ours.0.lease"),
    ("gpus.0.ours", [{"lease": LEASE.replace("-", "")}], "gpus.0.ours.0.lease"),
    ("gpus.0.foreign", "none", "gpus.0.foreign"),
    ("gpus.0.foreign", [7], "gpus.0.foreign.0"),
    ("gpus.0.healthy", "no", "gpus.0.healthy"),
    ("holds", [None], "holds.0"),
    ("holds", [{"lease": LEASE, "state": "dancing"}], "holds.0.state"),
    ("holds", [{"lease": LEASE, "state": ["running"]}], "holds.0.state"),
    ("holds", [{"state": "running"}], "holds.0.lease"),
    ("holds", "none", "holds"),
    ("disk", {"data_free_mib": "much"}, "disk.data_free_mib"),
    ("disk", [], "disk"),
    ("capabilities", {"worker_id": LEASE}, "capabilities.max_jobs"),
    ("paused_reason", 5, "paused_reason"),
]

# (path in a body, value, what is kept of the GPU: a column and its value)
ODD: list[tuple[str, Any, str, Any]] = [
    ("gpus.0.utilization_pct", 250, "utilization_pct", None),
    ("gpus.0.utilization_pct", -1, "utilization_pct", None),
    ("gpus.0.power_w", -3, "power_w", None),
    ("gpus.0.power_w", 10**400, "power_w", None),
    ("gpus.0.temperature_c", "hot", "temperature_c", None),
    ("gpus.0.temperature_c", -274, "temperature_c", None),
    ("gpus.0.temperature_c", 1e300, "temperature_c", None),
    ("gpus.0.temperature_c", True, "temperature_c", None),
    ("gpus.0.index", -1, "index", 0),
    ("gpus.0.index", 1_000_000, "index", 0),
    ("gpus.0.model", "RTX\x00 4090", "model", "RTX\ufffd 4090"),
    ("gpus.0.model", "\ud800", "model", "\ufffd"),
    ("gpus.0.model", 4090, "model", ""),
    ("gpus.0.model", "m" * 500, "model", "m" * 127 + "…"),
    ("gpus.0.vendor", [], "vendor", ""),
    ("gpus.0.compute_capability", 8.9, "compute_capability", ""),
    ("gpus.0.error", "lost\x00\udfff", "error", "lost\ufffd\ufffd"),
    ("gpus.0.ours", None, "ours", []),
    ("gpus.0.foreign", None, "foreign", []),
    ("gpus.0.foreign", [{"pid": -1}], "foreign", [{"pid": None, "name": None, "mib": None}]),
    ("gpus.0.foreign", [{"pid": "1", "name": "\x00"}], "foreign", [{"pid": None, "name": "\ufffd", "mib": None}]),
    ("gpus.0.total_vram_mib", "24564", "doubts", [{"code": "size_impossible", "mib": None}]),
    ("gpus.0.free_vram_mib", 24100.5, "doubts", [{"code": "free_impossible", "mib": None}]),
]


def changed(body: Any, path: str, value: Any) -> Any:
    """A deep copy of the body with one value changed."""
    copy = json.loads(json.dumps(body))
    *way, last = path.split(".")
    place = copy
    for step in way:
        place = place[int(step)] if step.isdecimal() else place[step]
    place[last] = value
    return copy


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


@pytest.mark.parametrize(("path", "value", "field"), WRONG, ids=[f"{path}={value!r:.20}" for path, value, _ in WRONG])
def test_a_wrong_value_is_422_and_named(enroll: Enroll, path: str, value: Any, field: str) -> None:
    worker = enroll(gpus=[GPU])
    body = BEAT | {"session": worker.session}

    answer = worker.post(f"{worker.id}/heartbeat", changed(body, path, value))

    assert answer.status_code == 422, answer.content
    assert answer.json()["code"] == "invalid"
    assert field in answer.json()["errors"]
    assert worker.row.beat == 0


@pytest.mark.parametrize(
    ("path", "value", "column", "kept"), ODD, ids=[f"{path}={value!r:.20}" for path, value, *_ in ODD]
)
def test_one_odd_reading_hides_nothing_else_and_costs_no_call(
    enroll: Enroll, path: str, value: Any, column: str, kept: Any
) -> None:
    worker = enroll(gpus=[GPU])
    other = GPU | {"uuid": "GPU-other", "index": 1}
    [odd, fine] = changed({"gpus": [GPU, other]}, path, value)["gpus"]

    beat = worker.heartbeat(gpus=[odd, fine])
    claim = worker.claim(gpus=[odd, fine])
    worker.gpus = [odd, fine]
    worker.register()  # which fails where it is refused

    assert (beat.status_code, claim.status_code) == (200, 204), beat.content + claim.content
    doubted, sound = Gpu.objects.filter(present=True).order_by("uuid")
    assert (doubted.uuid, sound.uuid) == (GPU["uuid"], "GPU-other")
    assert getattr(doubted, column) == kept
    assert doubted.total_vram_mib == sound.total_vram_mib == 24564


@pytest.mark.parametrize(
    "wrong",
    [
        {"gpus": None},
        {"gpus": [GPU, GPU]},
        {"gpus": [{"model": "nameless"}]},
        {"gpus": [GPU, GPU | {"uuid": "GPU-not-real", "simulated": True}]},
        {"gpus": [GPU | {"ours": [{"lease": "x"}]}]},
        {"holds": "none"},
    ],
    ids=str,
)
def test_a_worker_that_speaks_is_alive_even_where_it_is_refused(enroll: Enroll, wrong: Any) -> None:
    worker = enroll(gpus=[GPU])
    Worker.objects.update(last_seen_at=None)

    answer = worker.post(f"{worker.id}/heartbeat", BEAT | {"session": worker.session} | wrong)

    assert answer.status_code == 422
    assert worker.row.last_seen_at is not None
    assert Gpu.objects.get().uuid == GPU["uuid"]


def test_nonsense_of_an_ended_session_is_no_sign_of_life(enroll: Enroll) -> None:
    worker = enroll(gpus=[GPU])
    ended = worker.session
    worker.register()
    Worker.objects.update(last_seen_at=None)

    answer = worker.post(f"{worker.id}/heartbeat", BEAT | {"session": ended, "gpus": None})

    assert (answer.status_code, answer.json()["code"]) == (409, "session_superseded")
    assert worker.row.last_seen_at is None


def test_a_text_for_people_is_never_refused_for_a_character_in_it(enroll: Enroll) -> None:
    worker, claimed = with_a_job(enroll)

    beat = worker.heartbeat(accepting=False, paused_reason="lunch\x00\ud800", holds=None)
    events = worker.events(claimed, [{"seq": 1, "kind": "failed", "reason": "x", "detail": "a\x00b"}])

    assert (beat.status_code, worker.row.paused_reason) == (200, "lunch\ufffd\ufffd")
    assert events.status_code == 200, events.content


@pytest.mark.parametrize(
    ("event", "field"),
    [
        ({"seq": 0, "kind": "building"}, "events.0.seq"),
        ({"seq": "1", "kind": "building"}, "events.0.seq"),
        ({"seq": 1}, "events.0.kind"),
        ({"seq": 1, "kind": "Building!"}, "events.0.kind"),
        ({"seq": 1, "kind": "running"}, "events.0.image_id"),
        ({"seq": 1, "kind": "exited", "code": "1", "oom_killed": False}, "events.0.code"),
        ({"seq": 1, "kind": "exited", "code": 10**20, "oom_killed": False}, "events.0.code"),
        ({"seq": 1, "kind": "failed", "reason": "Not A Code", "detail": ""}, "events.0.reason"),
        ({"seq": 1, "kind": "failed", "reason": "x", "detail": 5}, "events.0.detail"),
        ({"seq": 1, "kind": "declined", "reason": "bored"}, "events.0.reason"),
        ({"seq": 1, "kind": "snapshot", "state": "asleep"}, "events.0.state"),
        ("building", "events.0"),
    ],
)
def test_a_wrong_event_is_422_and_the_batch_is_not_taken(enroll: Enroll, event: Any, field: str) -> None:
    worker, claimed = with_a_job(enroll)
    before = JobEvent.objects.count()

    answer = worker.events(claimed, [event], [{"stream": "run", "offset": 0, "text": "x"}])

    assert answer.status_code == 422, answer.content
    assert field in answer.json()["errors"]
    assert JobEvent.objects.count() == before
    assert worker.events(claimed, []).json()["log_offsets"] == {}


@pytest.mark.parametrize(
    ("log", "field"),
    [
        ({"stream": "stdout", "offset": 0, "text": ""}, "logs.0.stream"),
        ({"stream": "run", "offset": -1, "text": ""}, "logs.0.offset"),
        ({"stream": "run", "offset": 10**19, "text": ""}, "logs.0.offset"),
        ({"stream": "run", "offset": 0, "text": None}, "logs.0.text"),
        ({"stream": "run", "offset": 0, "text": "\ud800"}, "logs.0.text"),
    ],
)
def test_a_wrong_piece_of_log_is_422(enroll: Enroll, log: Any, field: str) -> None:
    worker, claimed = with_a_job(enroll)

    answer = worker.events(claimed, [], [log])

    assert answer.status_code == 422, answer.content
    assert field in answer.json()["errors"]


def with_a_job(enroll: Enroll) -> tuple[WireWorker, Any]:
    worker = enroll("here", local=True, gateway_url="http://127.0.0.1:18787")
    Worker.objects.update(gateway_status=Worker.Gateway.OK)
    JobFactory.create()
    return worker, worker.claim().json()


def test_long_texts_for_people_are_clipped_not_refused(enroll: Enroll) -> None:
    worker = enroll(gpus=[GPU])

    answer = worker.heartbeat(
        accepting=False, paused_reason="x" * 5000, gpus=[GPU | {"healthy": False, "error": "e" * 5000}]
    )

    assert answer.status_code == 200
    assert worker.row.paused_reason == "x" * 511 + "…"


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


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a message where a value stands."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for name, each in inner for place in places(each, (*path, name)))]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_message_however_mangled_is_a_500(bad_input_worker: Any, data: st.DataObject) -> None:
    worker, claimed = bad_input_worker
    BUCKETS._levels.clear()
    name, path = data.draw(
        st.sampled_from(
            [
                ("register.request.full", "register"),
                ("heartbeat.request.full", f"{worker.id}/heartbeat"),
                ("claim.request.full", f"{worker.id}/jobs/claim"),
                ("events.request.full", f"{worker.id}/jobs/{claimed['id']}/events"),
                ("lease.request.minimal", f"{worker.id}/jobs/{claimed['id']}/lease"),
            ]
        )
    )
    body = golden(name) | {"session": 1}
    if "lease" in body:
        body["lease"] = claimed["lease"]
    place = data.draw(st.sampled_from([each for each in places(body) if each]))
    target = body
    for step in place[:-1]:
        target = target[step]
    target[place[-1]] = data.draw(json_values)

    answer = worker.post(path, json.dumps(body), **{"Idempotency-Key": "hypothesis"})

    assert answer.status_code < 500, answer.content
    assert answer.status_code in (200, 204) or answer.json()["code"]


@pytest.fixture
def bad_input_worker(enroll: Enroll) -> tuple[WireWorker, Any]:
    return with_a_job(enroll)


def test_nothing_was_lost(enroll: Enroll) -> None:
    worker, claimed = with_a_job(enroll)
    for body in MALFORMED.values():
        worker.post(f"{worker.id}/jobs/{claimed['id']}/events", body)

    answer = worker.events(claimed, [{"seq": 1, "kind": "building"}])

    assert answer.status_code == 200
    assert Job.objects.get().state == "building"
