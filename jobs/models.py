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
from django.utils.translation import gettext_lazy as _

from jobs.state_names import STATE_CHOICES
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

    kind = models.CharField(_("kind"), max_length=8, choices=Kind)
    gpu_count = models.PositiveSmallIntegerField(_("number of GPUs"), default=0)
    vram_mib = models.PositiveIntegerField(
        _("VRAM (MiB)"), null=True, blank=True, help_text=_("per GPU; empty: whole GPUs of any size")
    )
    exclusive = models.BooleanField(_("whole GPUs"), default=False)
    features = ArrayField(models.CharField(max_length=32), verbose_name=_("features"), default=list, blank=True)
    worker = models.ForeignKey(
        "workers.Worker", verbose_name=_("worker"), null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )

    class Meta:
        verbose_name, verbose_name_plural = _("needs of jobs"), _("needs of jobs")
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
        INFERENCE = "inference", _("Inference")
        BENCHMARK = "benchmark", _("Benchmark")

    class Mode(models.TextChoices):
        SERVICE = "service", _("Service")
        BATCH = "batch", _("Batch")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    seq = models.BigIntegerField(unique=True, db_default=NextSeq(), editable=False)
    kind = models.CharField(_("kind"), max_length=16, choices=Kind, default=Kind.SPACE)
    mode = models.CharField(_("mode"), max_length=8, choices=Mode, default=Mode.SERVICE)

    space = models.ForeignKey("spaces.Space", verbose_name=_("Space"), on_delete=models.PROTECT, related_name="jobs")
    replica = models.PositiveSmallIntegerField(_("replica"), default=0)
    repository_id = models.CharField(
        _("repository id"), max_length=64, help_text=_("the forge's own id, which survives a rename")
    )
    owner = models.CharField(_("owner"), max_length=255)
    repo = models.CharField(_("repository"), max_length=255)
    revision = models.CharField(_("revision"), max_length=64, help_text=_("full commit id"))
    requirement = models.ForeignKey(Requirement, verbose_name=_("needs"), on_delete=models.PROTECT, related_name="jobs")
    spec = models.JSONField(
        _("start settings"),
        default=dict,
        help_text=_("what the worker is told: sdk, app_file, port, environment, limits, as of the start"),
    )

    state = models.CharField(_("state"), max_length=16, choices=STATE_CHOICES, default=JobState.QUEUED.value)
    state_since = models.DateTimeField(_("in this state since"), db_default=Now())
    reason_code = models.CharField(_("reason code"), max_length=64, blank=True)
    reason = models.TextField(_("reason"), blank=True, help_text=_("one sentence for people"))
    stop_requested_at = models.DateTimeField(_("stop requested at"), null=True, blank=True)
    stop_reason = models.CharField(_("reason of the stop"), max_length=255, blank=True)

    replaces = models.ForeignKey(
        "self", verbose_name=_("replaces"), null=True, blank=True, on_delete=models.PROTECT, related_name="replaced_by"
    )
    blocked_by = models.ForeignKey(
        "self", verbose_name=_("waits for"), null=True, blank=True, on_delete=models.PROTECT, related_name="blocks"
    )

    attempts = models.PositiveSmallIntegerField(_("attempts"), default=0, help_text=_("counted claims"))
    worker = models.ForeignKey(
        "workers.Worker", verbose_name=_("worker"), null=True, blank=True, on_delete=models.PROTECT, related_name="jobs"
    )
    image_id = models.CharField(_("image id"), max_length=128, blank=True)
    exit_code = models.IntegerField(_("exit code"), null=True, blank=True)
    oom_killed = models.BooleanField(_("out of memory"), default=False)

    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        verbose_name=_("requested by"),
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
    )
    queued_at = models.DateTimeField(_("queued at"), db_default=Now())
    leased_at = models.DateTimeField(_("leased at"), null=True, blank=True)
    build_started_at = models.DateTimeField(_("build started at"), null=True, blank=True)
    build_ended_at = models.DateTimeField(_("build ended at"), null=True, blank=True)
    first_ran_at = models.DateTimeField(_("first ran at"), null=True, blank=True)
    finished_at = models.DateTimeField(_("finished at"), null=True, blank=True)

    objects = JobQuerySet.as_manager()

    class Meta:
        verbose_name, verbose_name_plural = _("job"), _("jobs")
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
    job = models.ForeignKey(Job, verbose_name=_("job"), on_delete=models.PROTECT, related_name="leases")
    worker = models.ForeignKey(
        "workers.Worker", verbose_name=_("worker"), on_delete=models.PROTECT, related_name="leases"
    )
    attempt = models.PositiveSmallIntegerField(
        _("attempt"), help_text=_("the number of this claim of the job, never reused")
    )
    counted = models.BooleanField(_("counted"), default=True)
    session = models.PositiveIntegerField(_("session"), help_text=_("the worker's session that claimed it"))
    idempotency_key = models.CharField(_("idempotency key"), max_length=128)
    key_id = models.CharField(_("key id"), max_length=32, help_text=_("which lease key its tokens are derived from"))
    acquired_at = models.DateTimeField(_("acquired at"), db_default=Now())
    expires_at = models.DateTimeField(_("expires at"))  # no index: it would end HOT updates for every renewal
    released_at = models.DateTimeField(_("released at"), null=True, blank=True)
    cleared_at = models.DateTimeField(_("cleared at"), null=True, blank=True)
    accepted_through = models.PositiveIntegerField(
        _("last event taken"), default=0, help_text=_("seq of the last event taken")
    )
    unlisted_beats = models.PositiveSmallIntegerField(
        _("heartbeats without it"), default=0, help_text=_("heartbeats in a row that did not list it")
    )
    log_incomplete = models.BooleanField(_("log incomplete"), default=False)

    class Meta:
        verbose_name, verbose_name_plural = _("lease"), _("leases")
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

    lease = models.ForeignKey(Lease, verbose_name=_("lease"), on_delete=models.CASCADE, related_name="reservations")
    gpu = models.ForeignKey("workers.Gpu", verbose_name=_("GPU"), on_delete=models.PROTECT, related_name="reservations")
    mib = models.PositiveIntegerField(_("reserved (MiB)"), help_text=_("of an exclusive one: the whole card"))
    exclusive = models.BooleanField(_("whole GPU"), default=False)
    cleared_at = models.DateTimeField(
        _("cleared at"), null=True, blank=True, help_text=_("the lease's, repeated for the constraint")
    )
    over_since = models.DateTimeField(
        _("over since"), null=True, blank=True, help_text=_("since when the job uses more than that")
    )

    class Meta:
        verbose_name, verbose_name_plural = _("reservation"), _("reservations")
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

    job = models.ForeignKey(Job, verbose_name=_("job"), on_delete=models.PROTECT, related_name="events")
    at = models.DateTimeField(_("time"), db_default=Now())
    event = models.CharField(_("event"), max_length=32)
    from_state = models.CharField(_("from"), max_length=16, blank=True, choices=STATE_CHOICES)
    to_state = models.CharField(_("to"), max_length=16, blank=True, choices=STATE_CHOICES)
    ignored = models.BooleanField(
        _("ignored"), default=False, help_text=_("illegal in the state it met: kept, without effect")
    )
    reason_code = models.CharField(_("reason code"), max_length=64, blank=True)
    reason = models.TextField(_("reason"), blank=True)
    revision = models.CharField(_("revision"), max_length=64)
    image_id = models.CharField(_("image id"), max_length=128, blank=True)
    worker = models.ForeignKey(
        "workers.Worker", verbose_name=_("worker"), null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    worker_name = models.CharField(_("worker's name"), max_length=63, blank=True)
    lease = models.ForeignKey(
        Lease, verbose_name=_("lease"), null=True, blank=True, on_delete=models.SET_NULL, related_name="events"
    )
    seq = models.PositiveIntegerField(
        _("report number"), null=True, blank=True, help_text=_("the worker's number of this report")
    )
    actor = models.CharField(
        _("person"), max_length=150, blank=True, help_text=_("the person who did it, if a person did")
    )
    facts = models.JSONField(
        _("facts"), default=dict, blank=True, help_text=_("what its sentence does not say to everybody")
    )

    class Meta:
        verbose_name, verbose_name_plural = _("job event"), _("job events")
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

    at = models.DateTimeField(_("time"), db_default=Now())
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        verbose_name=_("account"),
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
    )
    actor_name = models.CharField(_("person"), max_length=150, blank=True)
    act = models.CharField(_("act"), max_length=64)
    object_type = models.CharField(_("kind of object"), max_length=32)
    object_id = models.CharField(_("object id"), max_length=255)
    object_name = models.CharField(_("object"), max_length=255, blank=True)
    reason = models.TextField(_("reason"), blank=True)
    address = models.GenericIPAddressField(_("address"), null=True, blank=True)
    before = models.JSONField(_("before"), null=True, blank=True)
    after = models.JSONField(_("after"), null=True, blank=True)

    class Meta:
        verbose_name, verbose_name_plural = _("audit entry"), _("audit")
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
