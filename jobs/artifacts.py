"""Results of batch jobs: what one attempt delivered, within the job's quota, and what people find of it afterwards.

A result is known by (lease, path, digest): delivering the same again changes nothing. It is taken while the lease is
not released, so all of them arrive before the job's end does. The files are `artifact_store`'s, the rows ours.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Count, Exists, OuterRef, QuerySet, Sum
from django.db.models.functions import Coalesce

from jobs import artifact_paths, artifact_store
from jobs.artifact_store import Incoming
from jobs.clock import database_now
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
from jobs.tokens import check_runtime_token

LEFT_OUT_KEPT = 100  # rows of what was not taken, per attempt: enough to see a pattern
PRUNED_AT_A_TIME = 500


@dataclass(frozen=True)
class Limits:
    """How much an attempt may deliver."""

    file_bytes: int
    job_bytes: int
    files: int


def limits() -> Limits:
    """The operator's."""
    return Limits(
        file_bytes=settings.OPENFACE_ARTIFACT_FILE_MAX_BYTES,
        job_bytes=settings.OPENFACE_ARTIFACT_JOB_MAX_BYTES,
        files=settings.OPENFACE_ARTIFACT_JOB_MAX_FILES,
    )


@dataclass(frozen=True)
class Results:
    """What people find of a job's newest attempt that delivered anything."""

    files: list[Artifact]
    left_out: list[Artifact]
    kept_until: datetime | None  # of the oldest of them; None: for ever

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(file.size or 0 for file in self.files)


# --- from workers -----------------------------------------------------------------------------------------------------


def lease_of(job_id: uuid.UUID, token: str) -> Lease:
    """Return the lease that the token opens. Raises NotYourArtifacts, and StaleLease where its right has ended."""
    leases = Lease.objects.select_related("job").filter(
        job=job_id, job__mode=Job.Mode.BATCH, worker__revoked_at__isnull=True
    )
    lease = next((lease for lease in leases if check_runtime_token(lease, token)), None)
    if lease is None:
        raise NotYourArtifacts
    if lease.released_at is not None:
        raise StaleLease
    return lease


def expect(lease: Lease, path: str, *, size: int, sha256: str) -> bool:
    """Say whether a result may come; False: it is here already. Asked before any of it is read. A few small queries.

    Raises BadArtifactPath, ArtifactTooLarge, QuotaExceeded (both remembered as left out) and StorageFull.
    """
    _check_path(path)
    if Artifact.objects.filter(lease=lease, path=path, sha256=sha256).exists():
        return False
    _check_quota(lease, path, size)
    if not artifact_store.has_room(size):
        raise StorageFull
    return True


def keep(lease: Lease, path: str, incoming: Incoming, *, sha256: str) -> Artifact:
    """Take a received file in, in place of an earlier one under that path. Blocks on the disk.

    Raises DigestMismatch, StaleLease (released meanwhile) and QuotaExceeded (others came meanwhile); then nothing is
    kept, and the caller discards `incoming`.
    """
    if incoming.finish() != sha256:
        raise DigestMismatch
    artifact = Artifact(job_id=lease.job_id, lease=lease, path=path, size=incoming.size, sha256=sha256)
    try:
        with transaction.atomic():
            # Two uploads of one lease, and its release, wait for each other here.
            if not Lease.objects.select_for_update(no_key=True).filter(pk=lease.pk, released_at=None).exists():
                raise StaleLease
            _check_quota(lease, path, incoming.size, remember=False)
            earlier = list(Artifact.objects.filter(lease=lease, path=path).values_list("pk", flat=True))
            Artifact.objects.filter(pk__in=earlier).delete()
            incoming.place(artifact.pk)
            artifact.save(force_insert=True)
    except BaseException:
        artifact_store.remove(artifact.pk)
        raise
    for old in earlier:
        artifact_store.remove(old)
    return artifact


def leave_out(lease: Lease, entries: Iterable[tuple[str, int | None, str]]) -> None:
    """Remember (path, size, reason) of results that the worker did not even send. Odd paths and reasons are skipped."""
    known = set(Artifact.LeftOut.values)
    for path, size, reason in list(entries)[:LEFT_OUT_KEPT]:
        if reason in known and not artifact_paths.problem_of(path):
            _remember_left_out(lease, path, size, Artifact.LeftOut(reason))


def delivered(lease: Lease) -> list[Artifact]:
    """Return what an attempt has delivered so far, for its worker to go on from."""
    return list(Artifact.objects.filter(lease=lease, left_out="").order_by("path"))


# --- for people -------------------------------------------------------------------------------------------------------


def results_of(job: Job) -> Results:
    """Return the results of a job. Two queries."""
    rows = list(_newest(job.pk).order_by("path"))
    files = [row for row in rows if not row.left_out]
    return Results(
        files=files,
        left_out=[row for row in rows if row.left_out],
        kept_until=kept_until(min(file.created_at for file in files)) if files else None,
    )


def find(job_id: uuid.UUID, path: str, *, space_id: int) -> Artifact | None:
    """Return a result of one of the Space's jobs, or None."""
    if artifact_paths.problem_of(path):
        return None
    return _newest(job_id).filter(path=path, left_out="", job__space=space_id).first()


def counts(jobs: Sequence[Job]) -> dict[uuid.UUID, int]:
    """Return how many results each of these jobs has; a job without any is missing. One query."""
    rows = Artifact.objects.filter(job__in=jobs, left_out="").values_list("job_id").annotate(count=Count("pk"))
    return dict(rows.order_by())


def kept_until(created_at: datetime) -> datetime | None:
    """Return when a result of that age goes, or None."""
    days = settings.OPENFACE_ARTIFACT_KEEP_DAYS
    return created_at + timedelta(days=days) if days else None


# --- for the keeper ---------------------------------------------------------------------------------------------------


def prune() -> int:
    """Remove results that were kept for long enough, and files that no row names; return how many rows went.

    The rows first: a file without a row is swept one day, a row without a file would be a promise that is not kept.
    Where this process does not see the directory, nothing is done.
    """
    if not artifact_store.directory().is_dir():
        return 0
    removed = 0
    days = settings.OPENFACE_ARTIFACT_KEEP_DAYS
    old = Artifact.objects.filter(created_at__lt=database_now() - timedelta(days=days)) if days else None
    while old is not None and (ids := list(old.values_list("pk", flat=True)[:PRUNED_AT_A_TIME])):
        Artifact.objects.filter(pk__in=ids).delete()
        for pk in ids:
            artifact_store.remove(pk)
        removed += len(ids)
    _remove_orphans()
    return removed


def _remove_orphans() -> None:
    artifact_store.sweep_incoming()
    batch: list[uuid.UUID] = []
    for pk in artifact_store.old_files():
        batch.append(pk)
        if len(batch) == PRUNED_AT_A_TIME:
            _remove_without_row(batch)
            batch = []
    _remove_without_row(batch)


def _remove_without_row(ids: list[uuid.UUID]) -> None:
    known = set(Artifact.objects.filter(pk__in=ids).values_list("pk", flat=True))
    for pk in ids:
        if pk not in known:
            artifact_store.remove(pk)


# --- the rules --------------------------------------------------------------------------------------------------------


def _check_path(path: str) -> None:
    problem = artifact_paths.problem_of(path)
    if problem:
        raise BadArtifactPath(problem)


def _check_quota(lease: Lease, path: str, size: int, *, remember: bool = True) -> None:
    """Raise where the result is too large, or one too many. `remember`: people are shown that it was left out."""
    (used, count), most = _used(lease, path), limits()
    error: ArtifactTooLarge
    if size > most.file_bytes:
        reason = Artifact.LeftOut.FILE_TOO_LARGE
        error = ArtifactTooLarge(f"A result may have {most.file_bytes} bytes.")
    elif used + size > most.job_bytes:
        reason = Artifact.LeftOut.JOB_QUOTA
        error = QuotaExceeded(f"The results of a job may have {most.job_bytes} bytes.")
    elif count >= most.files:
        reason = Artifact.LeftOut.TOO_MANY_FILES
        error = QuotaExceeded(f"A job may have {most.files} results.")
    else:
        return
    if remember:
        _remember_left_out(lease, path, size, reason)
    raise error


def _used(lease: Lease, path: str) -> tuple[int, int]:
    """Bytes and number of the attempt's other results."""
    others = Artifact.objects.filter(lease=lease, left_out="").exclude(path=path)
    sums = others.aggregate(size=Coalesce(Sum("size"), 0), count=Count("pk"))
    return int(sums["size"]), int(sums["count"])


def _remember_left_out(lease: Lease, path: str, size: int | None, reason: Artifact.LeftOut) -> None:
    """Write down that a result was left out, unless it is here, or there are many such rows already."""
    if Artifact.objects.filter(lease=lease).exclude(left_out="").count() >= LEFT_OUT_KEPT:
        return
    row = Artifact(job_id=lease.job_id, lease=lease, path=path, size=size, left_out=reason)
    Artifact.objects.bulk_create([row], ignore_conflicts=True)


def _newest(job_id: uuid.UUID) -> QuerySet[Artifact]:
    """The rows of the newest attempt that has any: results of two attempts are never mixed."""
    newer = Artifact.objects.filter(job=job_id, lease__attempt__gt=OuterRef("lease__attempt"))
    return Artifact.objects.filter(job=job_id).exclude(Exists(newer))
