"""Results of batch jobs: which are taken, under which names, and what counts against the quota."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from django.utils import timezone
from pytest_django import Settings

from jobs import artifact_paths, artifact_store, artifacts
from jobs.errors import (
    ArtifactTooLarge,
    BadArtifactPath,
    DigestMismatch,
    QuotaExceeded,
    StaleLease,
    StorageFull,
)
from jobs.models import Artifact, Lease
from tests.jobs.results import deliver, digest, on_disk

pytestmark = pytest.mark.django_db
AtOnce = Callable[[Iterable[Callable[[], Any]]], list[Any]]


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
