"""A worker delivers the results of a batch job: streamed, checked, within limits, and nobody else may."""

from __future__ import annotations

import json
import os
import socket
import uuid
from pathlib import Path

import pytest
from django.utils import timezone
from pytest_django import Settings

from jobs import artifact_store, artifacts
from jobs.models import Artifact, Lease
from jobs.tokens import runtime_token, source_token
from tests.gpu_worker.schemas import complaints
from tests.runtime_proxy.batch import Delivering, batch_job, content_digest
from tests.runtime_proxy.data_plane import Answer, DataPlane, until
from workers.models import Worker

MIB = 1024 * 1024


@pytest.fixture(autouse=True)
def _directory(settings: Settings, tmp_path: Path) -> None:
    settings.OPENFACE_ARTIFACTS_DIR = tmp_path / "artifacts"


@pytest.fixture
def mine(data_plane: DataPlane) -> Delivering:
    return batch_job(data_plane)


def stored() -> dict[str, bytes]:
    """What is kept, by path."""
    return {row.path: artifact_store.path_of(row.pk).read_bytes() for row in Artifact.objects.filter(left_out="")}


def code(answer: Answer) -> str:
    body = json.loads(answer.body)
    assert complaints("error", body) == []
    return str(body["code"])


def on_disk() -> list[Path]:
    return [file for file in artifact_store.directory().rglob("*") if file.is_file()]


# --- it works ---------------------------------------------------------------------------------------------------------


def test_a_result_is_stored_under_its_path(mine: Delivering) -> None:
    answer = mine.put("plots/結果 1.txt", b"score: 42\n")

    assert answer.status == 201
    assert stored() == {"plots/結果 1.txt": b"score: 42\n"}
    assert mine.inventory()["files"] == [
        {"path": "plots/結果 1.txt", "size": 10, "sha256": json.loads(answer.body)["sha256"]}
    ]


def test_megabytes_arrive_unchanged_and_once_and_nothing_is_a_result_too(mine: Delivering) -> None:
    content = os.urandom(5 * MIB + 17)

    assert mine.put("model.bin", content).status == 201

    assert stored() == {"model.bin": content}
    assert len(on_disk()) == 1
    kept = Artifact.objects.get().pk
    assert mine.put("model.bin", content).status == 200, "it is here already"
    assert Artifact.objects.get().pk == kept
    assert mine.put("empty", b"").status == 201
    assert stored()["empty"] == b""


def test_the_worker_learns_what_is_here_and_what_may_come(mine: Delivering, settings: Settings) -> None:
    settings.OPENFACE_ARTIFACT_JOB_MAX_FILES = 7
    mine.put("b", b"2")
    mine.put("a", b"1")

    told = mine.inventory()

    assert complaints("artifacts.inventory", told) == []
    assert [file["path"] for file in told["files"]] == ["a", "b"]
    assert (told["max_files"], told["max_file_bytes"]) == (7, settings.OPENFACE_ARTIFACT_FILE_MAX_BYTES)


def test_the_worker_tells_what_it_did_not_send(mine: Delivering) -> None:
    body = {"left_out": [{"path": "huge", "size": 10**12, "reason": "file_too_large"}, {"path": "?", "reason": "new"}]}
    assert complaints("artifacts.left_out", body) == []

    answer = mine.plane.get(mine.root, method="POST", body=json.dumps(body).encode(), Authorization=mine.authorization)

    assert answer.status == 200
    [row] = artifacts.results_of(mine.job).left_out
    assert (row.path, row.size, row.left_out) == ("huge", 10**12, "file_too_large")


def test_it_waits_for_no_content_that_it_will_not_take(mine: Delivering, settings: Settings) -> None:
    """Answered from the head alone: not a byte of the body is sent here."""
    settings.OPENFACE_ARTIFACT_FILE_MAX_BYTES = 10 * MIB
    head = (
        f"PUT {mine.root}/large HTTP/1.1\r\nHost: x\r\nAuthorization: {mine.authorization}\r\n"
        f"Content-Digest: {content_digest(b'')}\r\nContent-Length: {10 * MIB + 1}\r\n\r\n"
    )

    answer = mine.plane.raw(head.encode())

    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b'"too_large"' in answer
    assert [row.path for row in artifacts.results_of(mine.job).left_out] == ["large"]


# --- what is not taken ------------------------------------------------------------------------------------------------


def test_a_broken_upload_leaves_nothing(mine: Delivering) -> None:
    head = (
        f"PUT {mine.root}/a HTTP/1.1\r\nHost: x\r\nAuthorization: {mine.authorization}\r\n"
        f"Content-Digest: {content_digest(b'x')}\r\nContent-Length: {3 * MIB}\r\n\r\n"
    )
    with mine.plane.connect() as connection:
        connection.sendall(head.encode() + b"x" * 2 * MIB)
        until(lambda: any(file.suffix == ".part" for file in on_disk()))
        connection.shutdown(socket.SHUT_RDWR)

    until(lambda: on_disk() == [])
    assert not Artifact.objects.exists()
    assert mine.put("a", b"again").status == 201


def test_content_that_does_not_fit_its_digest_is_refused(mine: Delivering) -> None:
    answer = mine.put("a", b"as it came", digest=content_digest(b"as it was"))

    assert (answer.status, code(answer)) == (422, "digest_mismatch")
    assert on_disk() == []


def test_a_result_without_a_digest_is_refused(mine: Delivering) -> None:
    for digest in ("none", "sha-256=abc", "sha-256=:abc:", "md5=:AAAA:", "sha-256=:" + "A" * 44 + ":"):
        answer = mine.put("a", b"a", digest=digest)

        assert (answer.status, code(answer)) == (422, "invalid"), digest
    assert mine.put("a", b"a", digest=f"sha-512=:AAAA:, {content_digest(b'a')}").status == 201  # beside another one


def test_a_result_without_a_length_is_refused(mine: Delivering) -> None:
    answer = mine.plane.raw(
        f"PUT {mine.root}/a HTTP/1.1\r\nHost: x\r\nAuthorization: {mine.authorization}\r\nConnection: close\r\n"
        f"Content-Digest: {content_digest(b'a')}\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n".encode()
    )

    assert answer.startswith(b"HTTP/1.1 411 ")


ELSEWHERE = [
    *("..", "../x", "a/../../x", "%2e%2e/x", "a%2Fb", "a%2F..%2Fb", "%2Fetc/passwd", "/etc/passwd", "a//b", "a/"),
    *("a%00", "a%0Ab", "%FF", "a%5Cb", "x" * 300, ""),
]


def test_paths_that_lead_elsewhere_are_refused(mine: Delivering) -> None:
    for path in ELSEWHERE:
        answer = mine.put(path, b"a", raw=True)

        assert (answer.status, code(answer)) == (422, "invalid"), path
    assert not Artifact.objects.exists()


def test_over_the_quota_the_rest_stays_and_a_full_disk_asks_to_come_back(mine: Delivering, settings: Settings) -> None:
    settings.OPENFACE_ARTIFACT_JOB_MAX_BYTES = 2 * MIB
    mine.put("first", b"1" * MIB)

    answer = mine.put("second", b"2" * (MIB + 1))

    assert (answer.status, code(answer)) == (413, "quota_exceeded")
    assert list(stored()) == ["first"]
    assert [row.left_out for row in artifacts.results_of(mine.job).left_out] == ["job_quota"]

    settings.OPENFACE_ARTIFACT_DISK_FLOOR_MIB = 10**9
    answer = mine.put("third", b"3")
    assert (answer.status, code(answer), answer.one("retry-after")) == (503, "storage_full", "60")


# --- who may ----------------------------------------------------------------------------------------------------------


def test_nobody_but_the_leases_own_token_delivers_or_looks(mine: Delivering) -> None:
    other = batch_job(mine.plane, "bob/bench")
    credential = f"ofw_{mine.lease.worker_id.hex}_{'s' * 43}"
    wrong = [
        None,
        "",
        "Bearer",
        "Bearer ",
        f"Basic {runtime_token(mine.lease)}",
        f"Bearer {source_token(mine.lease)}",
        f"Bearer {runtime_token(other.lease)}",
        f"Bearer {credential}",
        "Bearer ü",
    ]

    for authorization in wrong:
        headers = {"Authorization": authorization.encode("latin-1").decode("latin-1")} if authorization else {}
        for path, method in ((mine.root, "GET"), (mine.root, "POST"), (f"{mine.root}/a", "PUT")):
            fields = {"Content_Digest": content_digest(b"a"), **headers}
            answer = mine.plane.get(path, method=method, body=b"a" if method != "GET" else None, **fields)
            assert (answer.status, code(answer)) == (401, "artifacts_denied"), authorization
    assert not Artifact.objects.exists()


def test_missing_jobs_and_other_methods_say_no_more(mine: Delivering) -> None:
    missing = mine.plane.get(f"/artifacts/{uuid.uuid4()}", Authorization=mine.authorization)
    assert (missing.status, code(missing)) == (401, "artifacts_denied")
    assert mine.plane.get("/artifacts/x", Authorization=mine.authorization).status == 401
    assert mine.plane.get(f"{mine.root}/a", Authorization=mine.authorization).status == 404
    assert mine.plane.get(f"{mine.root}/a", method="DELETE", Authorization=mine.authorization).status == 404


def test_a_released_lease_and_a_revoked_worker_deliver_nothing(mine: Delivering) -> None:
    Lease.objects.update(released_at=timezone.now())

    answer = mine.put("a", b"a")

    assert (answer.status, code(answer)) == (409, "lease_stale")
    assert on_disk() == []
    Worker.objects.update(revoked_at=timezone.now())
    assert mine.put("a", b"a").status == 401
