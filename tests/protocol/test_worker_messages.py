"""The worker reads and writes the wire of fixtures/protocol/v1, and nothing but it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpu_worker import protocol
from gpu_worker.artifact_client import Inventory
from gpu_worker.credentials import Credential
from gpu_worker.errors import WireError
from tests.gpu_worker.schemas import WIRE, complaints, golden


def cases(message: str) -> list[Any]:
    return [pytest.param(body, id=case) for case, body in golden(message).items()]


def every_golden() -> list[Any]:
    found = []
    for path in sorted([*WIRE.glob("*.json"), *WIRE.glob("errors/*.json")]):
        if not path.name.endswith(".schema.json"):
            message = "error" if path.parent.name == "errors" else ".".join(path.name.split(".")[:2])
            found.append(pytest.param(message, json.loads(path.read_text()), id=path.name))
    return found


@pytest.mark.parametrize(("message", "body"), every_golden())
def test_golden_messages_are_valid(message: str, body: dict[str, Any]) -> None:
    assert complaints(message, body) == []


@pytest.mark.parametrize(("message", "body"), every_golden())
def test_unknown_fields_are_allowed_everywhere(message: str, body: dict[str, Any]) -> None:
    assert complaints(message, _with_unknown_fields(body)) == []


def _with_unknown_fields(value: Any) -> Any:
    if isinstance(value, dict) and not _is_map(value):
        return {**{key: _with_unknown_fields(item) for key, item in value.items()}, "from_the_future": [1, {"a": None}]}
    if isinstance(value, list):
        return [_with_unknown_fields(item) for item in value]
    return value


def _is_map(value: dict[str, Any]) -> bool:
    """Objects whose keys are names of the job's own (environment, secrets, field errors), not of the protocol."""
    return all(isinstance(item, str) for item in value.values()) or all(
        isinstance(item, list) for item in value.values()
    )


@pytest.mark.parametrize("body", cases("enroll.response"))
def test_the_worker_reads_an_enrollment(body: dict[str, Any]) -> None:
    read = protocol.Enrollment.read(body)

    assert (read.worker_id, read.name, read.credential) == (body["worker_id"], body["name"], body["credential"])
    assert read.intervals.heartbeat_seconds == body["intervals"]["heartbeat_seconds"]


def test_the_golden_credential_follows_from_token_and_nonce() -> None:
    asked, answered = golden("enroll.request")["minimal"], golden("enroll.response")["minimal"]
    import base64
    import hmac

    secret = base64.urlsafe_b64encode(hmac.digest(asked["token"].encode(), asked["nonce"].encode(), "sha256"))

    credential = Credential(answered["credential"])
    assert credential.secret == secret.rstrip(b"=").decode()
    assert credential.worker_id == answered["worker_id"]


def test_the_golden_proofs_are_the_workers() -> None:
    credential = Credential(golden("enroll.response")["minimal"]["credential"])
    revoked = json.loads((WIRE / "errors" / "credential_revoked.json").read_text())

    assert golden("healthz.response")["full"]["proof"] == credential.prove("healthz:1c9e5a7f30b246d8")
    assert revoked["proof"] == credential.prove("revoked:" + credential.worker_id.replace("-", ""))


@pytest.mark.parametrize("body", cases("register.response"))
def test_the_worker_reads_the_answer_to_register(body: dict[str, Any]) -> None:
    read = protocol.Desired.read(body)

    assert (read.session, read.standing, read.gateway) == (body["session"], body["standing"], body.get("gateway"))
    assert [one.lease for one in read.leases] == [one["lease"] for one in body["leases"]]


@pytest.mark.parametrize("body", cases("heartbeat.response"))
def test_the_worker_reads_the_answer_to_a_heartbeat(body: dict[str, Any]) -> None:
    read = protocol.Desired.read(body)

    assert (read.gateway_url, read.gateway_detail) == (body.get("gateway_url"), body.get("gateway_detail"))
    assert [one.want for one in read.leases] == [one["want"] for one in body["leases"]]
    assert [one.next_seq for one in read.leases] == [one.get("next_seq") for one in body["leases"]]


@pytest.mark.parametrize("body", cases("claim.response"))
def test_the_worker_reads_a_claim(body: dict[str, Any]) -> None:
    read = protocol.Claim.read(body)

    assert (read.job, read.lease, read.revision, read.port) == (
        body["id"],
        body["lease"],
        body["revision"],
        body["port"],
    )
    assert read.repository_id == str(body["repository_id"])
    assert read.limits.stop_after_disconnect_seconds == body["limits"].get("stop_after_disconnect_s")
    assert "not-a-real-token" not in repr(read)


@pytest.mark.parametrize("body", cases("artifacts.inventory"))
def test_the_worker_reads_what_the_server_has_of_its_results(body: dict[str, Any]) -> None:
    read = Inventory.read(body)

    assert read.digests == {file["path"]: file["sha256"] for file in body["files"]}
    assert (read.quota.file_bytes, read.quota.job_bytes, read.quota.files) == (
        body["max_file_bytes"],
        body["max_job_bytes"],
        body["max_files"],
    )


@pytest.mark.parametrize("body", cases("events.response"))
def test_the_worker_reads_the_answer_to_a_report(body: dict[str, Any]) -> None:
    read = protocol.Receipt.read(body)

    assert read.accepted_through == body["accepted_through"]
    assert read.stop_wished == (body.get("stop") is not None)


@pytest.mark.parametrize("body", cases("lease.response"))
def test_the_worker_reads_a_renewal(body: dict[str, Any]) -> None:
    assert protocol.read_expiry(body) == body["expires_in_s"]


def required_fields() -> list[Any]:
    readers = {
        "enroll.response": protocol.Enrollment.read,
        "heartbeat.response": protocol.Desired.read,
        "claim.response": protocol.Claim.read,
        "lease.response": protocol.read_expiry,
    }
    found = []
    for message, read in readers.items():
        body = golden(message)["minimal"]
        for name in body:
            if not isinstance(body[name], (dict, list)):
                found.append(pytest.param(read, {**body, name: None}, id=f"{message}-without-{name}"))
                found.append(pytest.param(read, {**body, name: {"odd": 1}}, id=f"{message}-odd-{name}"))
    return found


@pytest.mark.parametrize(("read", "body"), required_fields())
def test_a_message_that_lacks_or_bends_a_required_field_is_refused(read: Any, body: dict[str, Any]) -> None:
    with pytest.raises(WireError):
        read(body)


@pytest.mark.parametrize("body", [None, [], "text", 3])
def test_an_answer_that_is_no_object_is_refused(body: object) -> None:
    with pytest.raises(WireError):
        protocol.Desired.read(body)


LEASE = "7be19a44-0c5d-4d2b-bf13-98e6a1c0d572"


def report_of(*events: protocol.Event, logs: tuple[protocol.LogChunk, ...] = ()) -> dict[str, Any]:
    return {
        "session": 1,
        "lease": LEASE,
        "events": [event.wire() for event in events],
        "logs": [chunk.wire() for chunk in logs],
    }


@pytest.mark.parametrize(
    "event",
    [
        protocol.Event(1, "building"),
        protocol.Event(2, "starting", {"reason": "host_rebooted", "image_id": None}),
        protocol.Event(3, "running", {"image_id": None, "gpus": [], "prefix": "keep"}),
        protocol.Event(4, "health", {"healthy": False, "detail": "paused"}),
        protocol.Event(10, "delivering", {"files": 3, "bytes": 734_003_200}),
        protocol.Event(5, "exited", {"code": None, "oom_killed": False, "log_ends": {"run": 3}}),
        protocol.Event(6, "failed", {"reason": "no_dockerfile", "detail": "A sentence."}),
        protocol.Event(7, "declined", {"reason": "shutdown", "detail": None}),
        protocol.Event(8, "stopped"),
        protocol.Event(9, "snapshot", {"state": "running"}),
    ],
    ids=lambda event: event.kind,
)
def test_the_workers_events_are_valid(event: protocol.Event) -> None:
    assert complaints("events.request", report_of(event)) == []


def test_an_event_without_its_facts_is_not_valid() -> None:
    assert complaints("events.request", report_of(protocol.Event(1, "exited"))) != []


def test_the_workers_gpus_and_holds_are_valid() -> None:
    gpu = protocol.Gpu(
        uuid="GPU-1", ours=(protocol.GpuUse(LEASE, None),), foreign=(protocol.ForeignProcess(1, None, 2),)
    )
    hold = protocol.Hold(LEASE, "running", healthy=True, kind="gpu", gpus=("GPU-1",), reason="memory is left")
    body = {"session": 1, "beat": 1, "accepting": True, "gpus": [gpu.wire()], "holds": [hold.wire()], "disk": None}

    assert complaints("heartbeat.request", body) == []
