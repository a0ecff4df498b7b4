"""Jobs: one row for each run of a Space."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from django.conf import settings
from django.db import models
from django.db.models import F, Func, Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from jobs.models.needs import Requirement
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
