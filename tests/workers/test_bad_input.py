"""A value that cannot be is refused by its field's name, and an odd reading hides nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jobs.models import JobEvent
from tests.workers.conftest import GPU
from tests.workers.taken_jobs import with_a_job
from workers.models import Gpu, Worker

pytestmark = pytest.mark.django_db
Enroll = Any
BEAT = {"session": 1, "beat": 5, "accepting": True, "gpus": [GPU], "holds": []}
LEASE = "7be19a44-0c5d-4d2b-bf13-98e6a1c0d572"
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


def test_long_texts_for_people_are_clipped_not_refused(enroll: Enroll) -> None:
    worker = enroll(gpus=[GPU])

    answer = worker.heartbeat(
        accepting=False, paused_reason="x" * 5000, gpus=[GPU | {"healthy": False, "error": "e" * 5000}]
    )

    assert answer.status_code == 200
    assert worker.row.paused_reason == "x" * 511 + "…"
