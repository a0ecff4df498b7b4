"""Tables of the jobs room. Fields, constraints and reads; every write of a state is in `jobs/lifecycle.py`.

References upwards are strings: this room knows nobody above it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Func, Q
from django.db.models.functions import Now

from jobs.states import ACTIVE, COMING, FINAL, SERVING, JobState


def _values(states: Iterable[JobState]) -> list[str]:
    """Plain strings for constraints, so that migrations hold data and no code of ours."""
    return sorted(state.value for state in states)


class NextSeq(Func):
    """The next place in the line: one sequence, so that FIFO is the order of submission."""

    function = "nextval"
    template = "%(function)s('jobs_job_seq')"
    output_field = models.BigIntegerField()


class Requirement(models.Model):
    """One class of needs, shared by all jobs that need the same. Immutable; scheduling is decided per class."""

    class Kind(models.TextChoices):
        CPU = "cpu", "CPU"
        GPU = "gpu", "GPU"

    kind = models.CharField(max_length=8, choices=Kind)
    gpu_count = models.PositiveSmallIntegerField(default=0)
    vram_mib = models.PositiveIntegerField(null=True, blank=True, help_text="per GPU; empty: whole GPUs of any size")
    exclusive = models.BooleanField(default=False)
    features = ArrayField(models.CharField(max_length=32), default=list, blank=True)
    worker = models.ForeignKey("workers.Worker", null=True, blank=True, on_delete=models.PROTECT, related_name="+")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["kind", "gpu_count", "vram_mib", "exclusive", "features", "worker"],
                name="one_row_per_requirement",
                nulls_distinct=False,
            ),
            models.CheckConstraint(
                condition=Q(kind="cpu", gpu_count=0) | Q(kind="gpu", gpu_count__gte=1), name="gpu_count_fits_kind"
            ),
        ]

    def __str__(self) -> str:
        if self.kind == self.Kind.CPU:
            need = "CPU"
        else:
            size = f" with {self.vram_mib} MiB" if self.vram_mib else ""
            whole = "whole " if self.exclusive or not self.vram_mib else ""
            need = f"{self.gpu_count} {whole}GPU{'s' if self.gpu_count > 1 else ''}{size}"
        return need


class JobQuerySet(models.QuerySet["Job"]):
    def active(self) -> JobQuerySet:
        return self.filter(state__in=ACTIVE)

    def claimable(self) -> JobQuerySet:
        return self.filter(state=JobState.QUEUED, blocked_by=None)


class Job(models.Model):
    """One run of a Space at one commit. A restart is a new job."""

    class Kind(models.TextChoices):
        SPACE = "space", "Space"
        INFERENCE = "inference", "Inference"
        BENCHMARK = "benchmark", "Benchmark"

    class Mode(models.TextChoices):
        SERVICE = "service", "Service"
        BATCH = "batch", "Batch"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    seq = models.BigIntegerField(unique=True, db_default=NextSeq(), editable=False)
    kind = models.CharField(max_length=16, choices=Kind, default=Kind.SPACE)
    mode = models.CharField(max_length=8, choices=Mode, default=Mode.SERVICE)

    space = models.ForeignKey("spaces.Space", on_delete=models.PROTECT, related_name="jobs")
    replica = models.PositiveSmallIntegerField(default=0)
    repository_id = models.CharField(max_length=64, help_text="the forge's own id, which survives a rename")
    owner = models.CharField(max_length=255)
    repo = models.CharField(max_length=255)
    revision = models.CharField(max_length=64, help_text="full commit id")
    requirement = models.ForeignKey(Requirement, on_delete=models.PROTECT, related_name="jobs")
    spec = models.JSONField(
        default=dict, help_text="what the worker is told: sdk, app_file, port, environment, limits, as of the start"
    )

    state = models.CharField(
        max_length=16, choices=[(s.value, s.value) for s in JobState], default=JobState.QUEUED.value
    )
    state_since = models.DateTimeField(db_default=Now())
    reason_code = models.CharField(max_length=64, blank=True)
    reason = models.TextField(blank=True, help_text="one sentence for people")
    stop_requested_at = models.DateTimeField(null=True, blank=True)
    stop_reason = models.CharField(max_length=255, blank=True)

    replaces = models.ForeignKey("self", null=True, blank=True, on_delete=models.PROTECT, related_name="replaced_by")
    blocked_by = models.ForeignKey("self", null=True, blank=True, on_delete=models.PROTECT, related_name="blocks")

    attempts = models.PositiveSmallIntegerField(default=0, help_text="counted claims")
    worker = models.ForeignKey("workers.Worker", null=True, blank=True, on_delete=models.PROTECT, related_name="jobs")
    image_id = models.CharField(max_length=128, blank=True)
    exit_code = models.IntegerField(null=True, blank=True)
    oom_killed = models.BooleanField(default=False)

    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    queued_at = models.DateTimeField(db_default=Now())
    leased_at = models.DateTimeField(null=True, blank=True)
    build_started_at = models.DateTimeField(null=True, blank=True)
    build_ended_at = models.DateTimeField(null=True, blank=True)
    first_ran_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    objects = JobQuerySet.as_manager()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(state__in=_values(JobState)), name="job_state_is_known"),
            models.UniqueConstraint(
                fields=["space", "replica"], condition=Q(state__in=_values(COMING)), name="one_coming_job_per_replica"
            ),
            models.UniqueConstraint(
                fields=["space", "replica"], condition=Q(state__in=_values(SERVING)), name="one_serving_job_per_replica"
            ),
            models.CheckConstraint(
                condition=Q(blocked_by__isnull=True) | ~Q(blocked_by=F("id")), name="job_not_blocked_by_itself"
            ),
        ]
        indexes = [
            # The claim's index. A second partial index on (seq) alone makes the planner choose wrongly: never add one.
            models.Index(
                fields=["requirement", "seq"],
                condition=Q(state=JobState.QUEUED.value, blocked_by__isnull=True),
                name="job_queue_by_class",
            ),
            # The same for a worker that takes batch jobs only (its gateway is closed): nobody else names the mode, so
            # the planner has it for nothing else.
            models.Index(
                fields=["requirement", "seq"],
                condition=Q(state=JobState.QUEUED.value, blocked_by__isnull=True, mode="batch"),
                name="job_batch_queue_by_class",
            ),
            models.Index(fields=["worker"], condition=Q(state__in=_values(ACTIVE)), name="job_active_by_worker"),
            models.Index(fields=["space", "-seq"], name="job_newest_of_space"),
        ]

    def __str__(self) -> str:
        return f"{self.owner}/{self.repo}@{self.revision[:7]} ({self.state})"

    @property
    def is_final(self) -> bool:
        return JobState(self.state) in FINAL

    @property
    def ever_ran(self) -> bool:
        return self.first_ran_at is not None


class Lease(models.Model):
    """The right of one worker to run one job, and its fencing: reports under a released lease change nothing.

    `released_at`: the right ended. `cleared_at`: the worker says that nothing of it is left. Between the two the
    reservations still count, because the container may.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="leases")
    worker = models.ForeignKey("workers.Worker", on_delete=models.PROTECT, related_name="leases")
    attempt = models.PositiveSmallIntegerField(help_text="the number of this claim of the job, never reused")
    counted = models.BooleanField(default=True)
    session = models.PositiveIntegerField(help_text="the worker's session that claimed it")
    idempotency_key = models.CharField(max_length=128)
    key_id = models.CharField(max_length=32, help_text="which lease key its tokens are derived from")
    acquired_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField()  # no index: it would end HOT updates for every renewal
    released_at = models.DateTimeField(null=True, blank=True)
    cleared_at = models.DateTimeField(null=True, blank=True)
    accepted_through = models.PositiveIntegerField(default=0, help_text="seq of the last event taken")
    unlisted_beats = models.PositiveSmallIntegerField(default=0, help_text="heartbeats in a row that did not list it")
    log_incomplete = models.BooleanField(default=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["worker", "idempotency_key"], name="one_lease_per_claim_key"),
            models.UniqueConstraint(
                fields=["job"], condition=Q(released_at__isnull=True), name="one_unreleased_lease_per_job"
            ),
            models.UniqueConstraint(fields=["job", "attempt"], name="one_lease_per_attempt"),
        ]
        indexes = [
            models.Index(fields=["worker"], condition=Q(cleared_at__isnull=True), name="lease_uncleared_by_worker"),
        ]

    def __str__(self) -> str:
        return f"lease {self.id} (attempt {self.attempt})"


class Reservation(models.Model):
    """VRAM of one GPU that a lease holds until it is cleared."""

    lease = models.ForeignKey(Lease, on_delete=models.CASCADE, related_name="reservations")
    gpu = models.ForeignKey("workers.Gpu", on_delete=models.PROTECT, related_name="reservations")
    mib = models.PositiveIntegerField(help_text="of an exclusive one: the whole card")
    exclusive = models.BooleanField(default=False)
    cleared_at = models.DateTimeField(null=True, blank=True, help_text="the lease's, repeated for the constraint")
    over_since = models.DateTimeField(null=True, blank=True, help_text="since when the job uses more than that")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["lease", "gpu"], name="one_reservation_per_lease_and_gpu"),
            models.UniqueConstraint(
                fields=["gpu"],
                condition=Q(exclusive=True, cleared_at__isnull=True),
                name="one_exclusive_reservation_per_gpu",
            ),
            # Only a card whose size nobody knows is given for 0 MiB, and then as a whole.
            models.CheckConstraint(condition=Q(exclusive=True) | Q(mib__gt=0), name="shared_reservation_has_a_size"),
        ]
        indexes = [
            models.Index(fields=["gpu"], condition=Q(cleared_at__isnull=True), name="reservation_uncleared_by_gpu"),
        ]

    def __str__(self) -> str:
        return f"{self.mib} MiB{' exclusive' if self.exclusive else ''}"


class JobEvent(models.Model):
    """One move of a job, or one report that was ignored. Never changed, never deleted with a worker."""

    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="events")
    at = models.DateTimeField(db_default=Now())
    event = models.CharField(max_length=32)
    from_state = models.CharField(max_length=16, blank=True)
    to_state = models.CharField(max_length=16, blank=True)
    ignored = models.BooleanField(default=False, help_text="illegal in the state it met: kept, without effect")
    reason_code = models.CharField(max_length=64, blank=True)
    reason = models.TextField(blank=True)
    revision = models.CharField(max_length=64)
    image_id = models.CharField(max_length=128, blank=True)
    worker = models.ForeignKey("workers.Worker", null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    worker_name = models.CharField(max_length=63, blank=True)
    lease = models.ForeignKey(Lease, null=True, blank=True, on_delete=models.SET_NULL, related_name="events")
    seq = models.PositiveIntegerField(null=True, blank=True, help_text="the worker's number of this report")
    actor = models.CharField(max_length=150, blank=True, help_text="the person who did it, if a person did")
    facts = models.JSONField(default=dict, blank=True, help_text="what its sentence does not say to everybody")

    class Meta:
        ordering = ["id"]
        indexes = [models.Index(fields=["job", "id"], name="event_by_job")]

    def __str__(self) -> str:
        return f"{self.from_state or '·'} → {self.to_state or self.event}"


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


class AuditEvent(models.Model):
    """One act of a person: who, what, on what, why, from where, and what it changed."""

    at = models.DateTimeField(db_default=Now())
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    actor_name = models.CharField(max_length=150, blank=True)
    act = models.CharField(max_length=64)
    object_type = models.CharField(max_length=32)
    object_id = models.CharField(max_length=255)
    object_name = models.CharField(max_length=255, blank=True)
    reason = models.TextField(blank=True)
    address = models.GenericIPAddressField(null=True, blank=True)
    before = models.JSONField(null=True, blank=True)
    after = models.JSONField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["object_type", "object_id", "-id"], name="audit_by_object")]

    def __str__(self) -> str:
        return f"{self.actor_name} {self.act} {self.object_name}"


class Uptime(models.Model):
    """One row: since when the control plane has been up without a break, by the database's clock.

    Silence of a worker is counted from here at the earliest, so that our own outage is nobody else's.
    """

    id = models.PositiveSmallIntegerField(primary_key=True, default=1, editable=False)
    up_since = models.DateTimeField(db_default=Now())
    alive_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="one_uptime_row")]

    def __str__(self) -> str:
        return f"up since {self.up_since}"


class RemoteSwitch(models.Model):
    """One row: whether remote GPU workers take part, as the web process that started last was told."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1, editable=False)
    enabled = models.BooleanField()
    since = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="one_remote_switch_row")]

    def __str__(self) -> str:
        return f"remote GPU workers {'on' if self.enabled else 'off'} since {self.since}"
