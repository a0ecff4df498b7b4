"""The server reads every golden request and writes answers that the schemas accept."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from rest_framework.exceptions import ErrorDetail

from jobs import errors as job_errors
from jobs.lifecycle import Instruction
from workers import credentials, reports
from workers import errors as worker_errors
from workers.api import serializers as wire
from workers.api.errors import answer_for, flatten
from workers.registry import Answer

V1 = Path(__file__).parents[2] / "fixtures" / "protocol" / "v1"
REQUESTS: dict[str, type[wire.Message]] = {
    "enroll": wire.EnrollIn,
    "register": wire.RegisterIn,
    "heartbeat": wire.HeartbeatIn,
    "claim": wire.ClaimIn,
    "events": wire.EventsIn,
    "lease": wire.LeaseIn,
}
ANSWERS: dict[str, Any] = {
    "enroll": wire.EnrollOut,
    "register": wire.RegisterOut,
    "heartbeat": wire.HeartbeatOut,
    "claim": wire.ClaimOut,
    "events": wire.EventsOut,
    "lease": wire.LeaseOut,
}


def load(name: str) -> Any:
    return json.loads((V1 / name).read_text(encoding="utf-8"))


SCHEMAS = Registry().with_resources(
    (path.name, Resource.from_contents(load(path.name))) for path in V1.glob("*.schema.json")
)


def complaints(message: str, value: Any) -> list[str]:
    schema = SCHEMAS.get_or_retrieve(f"{message}.schema.json").value.contents
    return [error.message for error in Draft202012Validator(schema, registry=SCHEMAS).iter_errors(value)]


def cases(side: str) -> list[str]:
    found = sorted(path.name for path in V1.glob(f"*.{side}.*.json") if not path.name.endswith(".schema.json"))
    assert found
    return found


def read(message: str, body: Any) -> Any:
    serializer = REQUESTS[message](data=body)
    serializer.is_valid(raise_exception=True)
    return serializer.validated_data


@pytest.mark.parametrize("case", cases("request"))
def test_every_golden_request_is_understood(case: str) -> None:
    value = read(case.partition(".")[0], load(case))

    assert type(value).__module__ == reports.__name__


@pytest.mark.parametrize("case", cases("request"))
def test_unknown_fields_of_a_newer_worker_are_ignored(case: str) -> None:
    message = case.partition(".")[0]
    body = load(case)

    def newer(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: newer(inner) for name, inner in value.items()} | {"of_a_newer_worker": {"ignored": [1]}}
        return [newer(inner) for inner in value] if isinstance(value, list) else value

    assert read(message, newer(body)) == read(message, body)


@pytest.mark.parametrize("message", sorted(REQUESTS))
def test_the_fields_that_the_schema_requires_are_required_and_no_others(message: str) -> None:
    schema = load(f"{message}.request.schema.json")

    errors = REQUESTS[message](data={})
    errors.is_valid()

    assert sorted(flatten(errors.errors)) == sorted(schema["required"])


def test_null_and_absent_mean_the_same() -> None:
    body = load("heartbeat.request.minimal.json")
    optional = {"paused_reason": None, "capabilities": None, "disk": None}

    assert read("heartbeat", body | optional) == read("heartbeat", body)


def test_holds_that_are_null_are_not_an_empty_list() -> None:
    body = load("heartbeat.request.minimal.json")

    assert read("heartbeat", body | {"holds": None}).holds is None
    assert read("heartbeat", body | {"holds": []}).holds == []


def test_a_hold_says_which_gpus_its_container_was_given_and_why_it_is_still_there() -> None:
    running, building, left = read("heartbeat", load("heartbeat.request.full.json")).holds

    assert (running.kind, running.gpus) == ("gpu", ["GPU-5f1c2a90-7d34-4be6-a1c8-0e93d27b64f5"])
    assert (building.kind, building.gpus, building.reason) == (None, None, None), "an older worker says nothing"
    assert "has not released 5120 MiB" in left.reason


def test_a_gpu_that_could_not_be_read_keeps_its_place() -> None:
    first, second = read("heartbeat", load("heartbeat.request.full.json")).gpus

    assert (first.total_vram_mib, first.foreign[0].pid) == (24564, 4711)
    assert (second.total_vram_mib, second.healthy, second.error) == (None, False, "GPU is lost")


def test_events_carry_the_fields_of_their_kind() -> None:
    events = read("events", load("events.request.full.json")).events

    assert [event.kind for event in events] == ["building", "starting", "running", "health", "delivering", "exited"]
    assert events[1].data["reason"] == "host_rebooted"
    assert events[4].data == {"files": 3, "bytes": 734_003_200}
    assert events[5].data == {
        "code": 137,
        "oom_killed": True,
        "detail": "The app ended with code 137, out of memory. Its last line: Loading the model",
        "log_ends": {"build": 18211, "run": 36, "system": 120},
    }


def test_an_event_of_an_unknown_kind_is_taken_for_a_newer_workers() -> None:
    body = load("events.request.minimal.json") | {"events": [{"seq": 1, "kind": "hibernated", "until": "spring"}]}

    assert read("events", body).events == [reports.EventReport(1, "hibernated", {})]


@pytest.mark.parametrize("case", cases("response"))
def test_the_server_writes_every_golden_answer(case: str) -> None:
    """What the output serializers know of a golden answer comes out as it is there."""
    message = case.partition(".")[0]
    if message == "healthz":
        return  # written by the worker's gateway
    body = load(case)
    if message == "claim":
        body["repository_id"] = str(body["repository_id"])
    instance = with_wire_names(body)

    written = json.loads(json.dumps(ANSWERS[message](instance).data, default=str))

    known = {name: value for name, value in body.items() if name in ANSWERS[message]().fields}
    assert without_nulls(written) == without_nulls(known)
    assert complaints(f"{message}.response", written) == []


def with_wire_names(body: Any) -> Any:
    """A golden answer as the values it is made of: absent optional fields are None."""
    if "leases" in body:
        leases = []
        for lease in body["leases"]:
            facts = dict(lease)
            leases.append(Instruction(lease_id=facts.pop("lease"), **facts))
        answer = {"gateway": None, "session": None, "gateway_url": None, "gateway_detail": None, **body}
        return Answer(**{**{field.name: answer[field.name] for field in fields(Answer)}, "leases": leases})
    if "requirements" in body:
        optional = ("artifacts_url", "sdk", "app_file", "sdk_version", "python_version", "startup_timeout_s")
        body = {**dict.fromkeys(optional), **body}
        needs = {"vram_mib": None, "exclusive": False, "features": [], "worker": None, **body["requirements"]}
        return body | {"requirements": needs}
    if "accepted_through" in body:
        return {"stop": None, **body}
    return body


def without_nulls(value: Any) -> Any:
    """Null, absent and an empty reason all say nothing."""
    if isinstance(value, dict):
        kept = {name: without_nulls(inner) for name, inner in value.items()}
        return {name: inner for name, inner in kept.items() if inner not in (None, "", {}, [], False)}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value


ERRORS: list[Exception] = [
    worker_errors.CredentialInvalid(),
    worker_errors.CredentialRevoked(proof="b58b90aa7a1ef9855c4e2f680b5e4022719a747f3ae285fc441184a657c21972"),
    worker_errors.TokenUnknown(),
    worker_errors.TokenUsed(),
    worker_errors.TokenExpired(),
    worker_errors.NotYourWorker(),
    worker_errors.NameTaken(),
    worker_errors.GpuWorkersDisabled(),
    worker_errors.Throttled(retry_after_seconds=0.2),
    worker_errors.InvalidReport({"gpus.0.uuid": ["This field is required."]}),
    job_errors.StaleLease(),
    job_errors.SupersededSession(),
    job_errors.EventGap(3),
    job_errors.UnknownJob(),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_have_the_code_the_status_and_the_fields_of_the_protocol(error: Exception) -> None:
    answer = answer_for(error, {})

    assert answer is not None
    assert complaints("error", answer.data) == []
    assert answer.status_code == load("error.schema.json")["x-statuses"][answer.data["code"]]
    wanted = load(f"errors/{answer.data['code']}.json")
    assert answer.data.keys() == wanted.keys()


def test_the_proof_of_a_revocation_is_the_golden_one() -> None:
    enrolled = load("enroll.response.full.json")
    credential = credentials.parse(enrolled["credential"])
    assert credential is not None

    proof = credentials.revocation_proof(credential.worker_id, credentials.digest(credential.secret))

    assert proof == load("errors/credential_revoked.json")["proof"]


def test_the_credential_is_derived_as_in_the_golden_enrollment() -> None:
    asked, answered = load("enroll.request.full.json"), load("enroll.response.full.json")
    expected = credentials.parse(answered["credential"])
    assert expected is not None

    minted = credentials.mint(expected.worker_id, token=asked["token"], nonce=asked["nonce"])

    assert str(minted) == answered["credential"]


def test_the_proof_of_a_gateway_is_the_golden_one() -> None:
    credential = credentials.parse(load("enroll.response.full.json")["credential"])
    assert credential is not None

    proof = credentials.healthz_proof("1c9e5a7f30b246d8", credentials.digest(credential.secret))

    assert proof == load("healthz.response.full.json")["proof"]


def test_errors_name_the_field_by_its_path() -> None:
    nested = {
        "gpus": [{}, {"uuid": [ErrorDetail("This field is required.")]}],
        "capabilities": {"features": {0: [ErrorDetail("A string is needed.")]}},
        "non_field_errors": [ErrorDetail("No object.")],
    }

    assert flatten(nested) == {
        "gpus.1.uuid": ["This field is required."],
        "capabilities.features.0": ["A string is needed."],
        "body": ["No object."],
    }
