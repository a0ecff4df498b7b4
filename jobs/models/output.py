"""What a job leaves: its log and its results."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from jobs.models.job import Job
from jobs.models.lease import Lease


class LogChunk(models.Model):
    """Contiguous text of one stream of one lease. Offsets count UTF-8 bytes as the worker sent them."""

    class Stream(models.TextChoices):
        BUILD = "build", "Build"
        RUN = "run", "Run"
        SYSTEM = "system", "System"

    lease = models.ForeignKey(Lease, on_delete=models.CASCADE, related_name="log_chunks")
    stream = models.CharField(max_length=8, choices=Stream)
    offset = models.PositiveBigIntegerField()
    end = models.PositiveBigIntegerField()
    text = models.TextField()
    at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["lease", "stream", "offset"], name="one_chunk_per_offset")]

    def __str__(self) -> str:
        return f"{self.stream} {self.offset}–{self.end}"


class Artifact(models.Model):
    """One result of a batch job, as one attempt delivered it; or, with `left_out`, one that was not taken and why.

    The file is on disk under the row's id (`jobs/artifact_store.py`), so a changed result is a new id.
    """

    class LeftOut(models.TextChoices):
        FILE_TOO_LARGE = "file_too_large", "larger than one result may be"
        JOB_QUOTA = "job_quota", "more than a job's results may be together"
        TOO_MANY_FILES = "too_many_files", "more files than a job may have"
        BAD_NAME = "bad_name", "a name that cannot be kept"
        UNREADABLE = "unreadable", "it could not be read"
        STOPPED = "stopped", "the job was stopped before it was delivered"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="artifacts")
    lease = models.ForeignKey(Lease, on_delete=models.PROTECT, related_name="artifacts")
    path = models.CharField(max_length=1024)
    size = models.PositiveBigIntegerField(null=True, blank=True, help_text="bytes; empty: not known")
    sha256 = models.CharField(max_length=64, blank=True)
    left_out = models.CharField(max_length=32, blank=True, choices=LeftOut, help_text="empty: it is kept")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["lease", "path"], name="one_artifact_per_path"),
            models.CheckConstraint(
                condition=Q(left_out="", size__isnull=False) & ~Q(sha256="") | ~Q(left_out="") & Q(sha256=""),
                name="kept_artifact_has_size_and_digest",
            ),
        ]

    def __str__(self) -> str:
        return self.path
