"""Results of batch jobs: for how long they are kept, and what is swept away."""

from __future__ import annotations

import os
import time
import uuid
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.utils import timezone
from pytest_django import Settings

from jobs import artifact_store, artifacts
from jobs.artifact_store import Incoming
from jobs.models import Artifact, Lease
from tests.factories import ago
from tests.jobs.results import deliver, on_disk

pytestmark = pytest.mark.django_db


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
