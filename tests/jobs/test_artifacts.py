"""Results of batch jobs: what counts against the quota, what people find, and how long it is kept."""

from __future__ import annotations

import hashlib
import os
import time
import uuid
from collections.abc import Callable, Iterable
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone
from pytest_django import Settings

from jobs import artifact_paths, artifact_store, artifacts
from jobs.artifact_store import Incoming
from jobs.errors import (
    ArtifactTooLarge,
    BadArtifactPath,
    DigestMismatch,
    NotYourArtifacts,
    QuotaExceeded,
    StaleLease,
    StorageFull,
)
from jobs.models import Artifact, Job, Lease
from jobs.tokens import runtime_token, source_token
from tests.factories import JobFactory, WorkerFactory, ago

pytestmark = pytest.mark.django_db

AtOnce = Callable[[Iterable[Callable[[], Any]]], list[Any]]


@pytest.fixture(autouse=True)
def _directory(settings: Settings, tmp_path: Path) -> None:
    settings.OPENFACE_ARTIFACTS_DIR = tmp_path / "artifacts"
    settings.OPENFACE_ARTIFACT_FILE_MAX_BYTES = 100
    settings.OPENFACE_ARTIFACT_JOB_MAX_BYTES = 150
    settings.OPENFACE_ARTIFACT_JOB_MAX_FILES = 3
    settings.OPENFACE_ARTIFACT_DISK_FLOOR_MIB = 1


def lease_of(job: Job, *, attempt: int = 1) -> Lease:
    return Lease.objects.create(
        job=job,
        worker=WorkerFactory.create(),
        attempt=attempt,
        session=1,
        idempotency_key=str(uuid.uuid4()),
        key_id="k1",
        expires_at=timezone.now() + timedelta(hours=1),
    )


@pytest.fixture
def lease(db: None) -> Lease:
    return lease_of(JobFactory.create(mode="batch", state="running"))


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def deliver(lease: Lease, path: str, content: bytes, *, sha256: str = "") -> Artifact | None:
    """As the data plane does it; None where it is here already."""
    sha256 = sha256 or digest(content)
    if not artifacts.expect(lease, path, size=len(content), sha256=sha256):
        return None
    incoming = Incoming()
    try:
        incoming.write(content)
        return artifacts.keep(lease, path, incoming, sha256=sha256)
    finally:
        incoming.discard()


def on_disk() -> list[Path]:
    return [file for file in artifact_store.directory().rglob("*") if file.is_file()]


# --- one result -------------------------------------------------------------------------------------------------------


def test_a_result_is_kept_with_its_size_and_digest(lease: Lease) -> None:
    kept = deliver(lease, "plots/loss.png", b"picture")

    assert kept is not None
    found = artifacts.find(lease.job_id, "plots/loss.png", space_id=lease.job.space_id)
    assert found == kept
    assert (found.size, found.sha256) == (7, digest(b"picture"))
    assert artifact_store.path_of(found.pk).read_bytes() == b"picture"
    assert on_disk() == [artifact_store.path_of(found.pk)]
    assert found.path not in str(on_disk())


def test_nobody_else_on_the_server_reads_it(lease: Lease) -> None:
    deliver(lease, "a", b"private")

    root = artifact_store.directory()
    assert {path.stat().st_mode & 0o077 for path in (root, *root.rglob("*"))} == {0}


def test_the_same_result_again_changes_nothing(lease: Lease) -> None:
    first = deliver(lease, "a.txt", b"same")

    assert deliver(lease, "a.txt", b"same") is None
    assert list(Artifact.objects.all()) == [first]


def test_a_changed_result_replaces_the_former_one_and_its_file(lease: Lease) -> None:
    deliver(lease, "a.txt", b"old")
    new = deliver(lease, "a.txt", b"newer")

    assert list(Artifact.objects.all()) == [new]
    assert [file.read_bytes() for file in on_disk()] == [b"newer"]


def test_a_result_with_another_digest_than_was_said_is_not_kept(lease: Lease) -> None:
    with pytest.raises(DigestMismatch):
        deliver(lease, "a.txt", b"broken on the way", sha256=digest(b"what was meant"))

    assert not Artifact.objects.exists()
    assert on_disk() == []


def test_nothing_is_taken_under_a_lease_that_was_released_meanwhile(lease: Lease) -> None:
    Lease.objects.update(released_at=timezone.now())

    with pytest.raises(StaleLease):
        deliver(lease, "a.txt", b"late")

    assert on_disk() == []


@pytest.mark.parametrize(
    "path", ["a", "a/b/c.txt", "結果/図　1.png", "e\u0301", ".hidden", "-rf", "a b", "x" * 255, "👩‍💻"]
)
def test_ordinary_names_in_any_language_are_good(path: str) -> None:
    assert artifact_paths.problem_of(path) == ""


@pytest.mark.parametrize(
    "path",
    ["", "/etc/passwd", "../a", "a/../b", "a/..", "./a", "a//b", "a/", "a\\b", "a\nb", "a\x00", "\x1b[31m", "\x85",
     "a\u2028b", "\udcff", "x" * 256, "a/" * 512 + "b"],
)  # fmt: skip
def test_names_that_lead_elsewhere_or_cannot_be_shown_are_refused(lease: Lease, path: str) -> None:
    with pytest.raises(BadArtifactPath):
        artifacts.expect(lease, path, size=1, sha256=digest(b"a"))

    assert artifacts.find(lease.job_id, path, space_id=lease.job.space_id) is None


# --- how much ---------------------------------------------------------------------------------------------------------


def test_a_result_that_is_too_large_is_left_out_and_the_rest_is_kept(lease: Lease) -> None:
    deliver(lease, "before", b"b" * 40)
    with pytest.raises(ArtifactTooLarge):
        deliver(lease, "large", b"x" * 101)
    deliver(lease, "after", b"a" * 40)

    results = artifacts.results_of(lease.job)

    assert [file.path for file in results.files] == ["after", "before"]
    assert [(row.path, row.size, row.left_out) for row in results.left_out] == [("large", 101, "file_too_large")]
    assert results.size == 80


def test_the_results_of_a_job_together_are_limited_in_bytes_and_in_number(lease: Lease) -> None:
    deliver(lease, "a", b"a" * 100)
    with pytest.raises(QuotaExceeded):
        deliver(lease, "b", b"b" * 51)
    deliver(lease, "c", b"c")
    deliver(lease, "d", b"d")
    with pytest.raises(QuotaExceeded):
        deliver(lease, "e", b"e")
    deliver(lease, "d", b"D")  # in place of one that is here, so not one more

    reasons = Artifact.objects.exclude(left_out="").order_by("path").values_list("path", "left_out")
    assert list(reasons) == [("b", "job_quota"), ("e", "too_many_files")]


def test_what_was_left_out_once_and_fits_now_is_kept(lease: Lease, settings: Settings) -> None:
    with pytest.raises(ArtifactTooLarge):
        deliver(lease, "large", b"x" * 101)

    settings.OPENFACE_ARTIFACT_FILE_MAX_BYTES = 101
    deliver(lease, "large", b"x" * 101)

    results = artifacts.results_of(lease.job)
    assert [file.path for file in results.files] == ["large"]
    assert results.left_out == []


@pytest.mark.django_db(transaction=True)
def test_two_results_at_once_never_exceed_the_quota(lease: Lease, at_once: AtOnce) -> None:
    sent = [lambda name=name: deliver(lease, name, name.encode() * 80) for name in ("a", "b")]

    outcomes = at_once(sent)

    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Artifact", "QuotaExceeded"]
    assert Artifact.objects.filter(left_out="").count() == len(on_disk()) == 1


@pytest.mark.django_db(transaction=True)
def test_the_same_result_at_once_is_one_row_and_one_file(lease: Lease, at_once: AtOnce) -> None:
    outcomes = at_once([lambda: deliver(lease, "a", b"same")] * 4)

    assert not [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    assert Artifact.objects.count() == len(on_disk()) == 1


def test_no_result_fills_the_disk(lease: Lease, settings: Settings) -> None:
    settings.OPENFACE_ARTIFACT_DISK_FLOOR_MIB = 10**9

    with pytest.raises(StorageFull):
        deliver(lease, "a", b"a")

    assert not Artifact.objects.exists()  # not left out: it may come later


def test_what_a_worker_did_not_send_is_remembered_within_bounds(lease: Lease) -> None:
    entries: list[tuple[str, int | None, str]] = [(f"f{n}", n, "too_many_files") for n in range(1000)]
    artifacts.leave_out(lease, [("../x", 1, "bad_name"), ("odd", None, "because"), *entries])

    left_out = artifacts.results_of(lease.job).left_out
    assert len(left_out) == artifacts.LEFT_OUT_KEPT - 2
    assert {row.left_out for row in left_out} == {"too_many_files"}


# --- whose ------------------------------------------------------------------------------------------------------------


def test_the_runtime_token_of_a_batch_jobs_own_lease_opens_it_and_nothing_else_does(lease: Lease) -> None:
    other = lease_of(JobFactory.create(mode="batch", state="running"))
    service = lease_of(JobFactory.create(mode="service", state="running"))

    assert artifacts.lease_of(lease.job_id, runtime_token(lease)) == lease
    wrong = [
        (lease, runtime_token(other)),
        (lease, source_token(lease)),
        (lease, ""),
        (service, runtime_token(service)),
    ]
    for mine, token in wrong:
        with pytest.raises(NotYourArtifacts):
            artifacts.lease_of(mine.job_id, token)


def test_a_released_lease_and_a_revoked_worker_open_nothing(lease: Lease) -> None:
    token = runtime_token(lease)
    Lease.objects.update(released_at=timezone.now())
    with pytest.raises(StaleLease):
        artifacts.lease_of(lease.job_id, token)

    lease.worker.revoked_at = timezone.now()
    lease.worker.save()
    with pytest.raises(NotYourArtifacts):
        artifacts.lease_of(lease.job_id, token)


def test_another_space_has_no_such_result(lease: Lease) -> None:
    deliver(lease, "a", b"a")

    assert artifacts.find(lease.job_id, "a", space_id=JobFactory.create().space_id) is None


def test_results_of_two_attempts_are_never_mixed(lease: Lease) -> None:
    deliver(lease, "old", b"1")
    deliver(lease, "both", b"1")
    Lease.objects.update(released_at=timezone.now())
    second = lease_of(lease.job, attempt=2)
    assert [file.path for file in artifacts.results_of(lease.job).files] == ["both", "old"]

    deliver(second, "both", b"2")

    assert [(file.path, file.lease_id) for file in artifacts.results_of(lease.job).files] == [("both", second.pk)]
    assert artifacts.find(lease.job_id, "old", space_id=lease.job.space_id) is None


# --- for how long -----------------------------------------------------------------------------------------------------


def test_results_go_after_the_kept_days_and_not_before(lease: Lease, settings: Settings) -> None:
    settings.OPENFACE_ARTIFACT_KEEP_DAYS = 7
    old, young = deliver(lease, "old", b"1"), deliver(lease, "young", b"2")
    assert old is not None and young is not None
    Artifact.objects.filter(pk=old.pk).update(created_at=ago(7 * 86_400 + 60))
    Artifact.objects.filter(pk=young.pk).update(created_at=ago(7 * 86_400 - 60))

    assert artifacts.prune() == 1

    assert list(Artifact.objects.all()) == [young]
    assert on_disk() == [artifact_store.path_of(young.pk)]


def test_the_keeper_removes_old_results(lease: Lease, settings: Settings) -> None:
    settings.OPENFACE_ARTIFACT_KEEP_DAYS = 7
    deliver(lease, "old", b"1")
    Artifact.objects.update(created_at=ago(8 * 86_400))

    call_command("keeper", "--once", stdout=StringIO())

    assert (Artifact.objects.count(), on_disk()) == (0, [])


def test_results_can_be_kept_for_ever(lease: Lease, settings: Settings) -> None:
    settings.OPENFACE_ARTIFACT_KEEP_DAYS = 0
    deliver(lease, "old", b"1")
    Artifact.objects.update(created_at=ago(10_000 * 86_400))

    assert artifacts.prune() == 0
    assert artifacts.results_of(lease.job).kept_until is None


def test_files_that_no_row_names_are_swept_after_a_day(lease: Lease) -> None:
    kept = deliver(lease, "kept", b"1")
    assert kept is not None
    fresh, dead = Incoming(), Incoming()
    orphan, young_orphan = uuid.uuid4(), uuid.uuid4()
    for pk in (orphan, young_orphan):
        made = Incoming()
        made.finish()
        made.place(pk)
    dead_part = dead._path
    two_days_ago = time.time() - 2 * 86_400
    for file in (dead_part, artifact_store.path_of(orphan), artifact_store.path_of(kept.pk)):
        os.utime(file, (two_days_ago, two_days_ago))

    artifacts.prune()

    left = on_disk()
    assert artifact_store.path_of(kept.pk) in left
    assert artifact_store.path_of(young_orphan) in left
    assert artifact_store.path_of(orphan) not in left
    assert dead_part not in left
    assert len(left) == 3
    fresh.discard()
    dead.discard()


def test_a_keeper_that_does_not_see_the_files_forgets_no_row(lease: Lease, settings: Settings, tmp_path: Path) -> None:
    deliver(lease, "old", b"1")
    Artifact.objects.update(created_at=ago(10_000 * 86_400))
    settings.OPENFACE_ARTIFACTS_DIR = tmp_path / "not mounted here"

    assert artifacts.prune() == 0
    assert Artifact.objects.count() == 1


def test_a_worker_with_results_cannot_be_deleted_and_revoking_it_keeps_them(lease: Lease) -> None:
    deliver(lease, "a", b"a")
    lease.worker.revoked_at = timezone.now()
    lease.worker.save()

    assert [file.path for file in artifacts.results_of(lease.job).files] == ["a"]
    with pytest.raises(Exception, match="protected"):
        lease.worker.delete()
