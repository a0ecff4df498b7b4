"""Tables of the workers room: enrollment tokens, workers and their GPUs."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower, Now
from django.utils.translation import gettext_lazy as _

# Heartbeats in a row in which a GPU that failed must be well before it is used again.
GOOD_REPORTS = 3


class WorkerQuerySet(models.QuerySet["Worker"]):
    def kept(self) -> WorkerQuerySet:
        """Those that are not forgotten: only they have their names for themselves."""
        return self.filter(forgotten_at=None)

    def online(self, *, now: datetime, up_since: datetime) -> WorkerQuerySet:
        """Those whose `is_online` is true, for where a thousand of them are only counted."""
        oldest = now - timedelta(seconds=settings.OPENFACE_GPU_WORKER_STALE_SECONDS)
        heard = Q(last_seen_at__isnull=False) if up_since > oldest else Q(last_seen_at__gt=oldest)
        return self.filter(heard, revoked_at=None)


class Worker(models.Model):
    """A GPU machine that may claim jobs. Its standing is three facts: `scheduling`, heard of or not, `revoked_at`."""

    class Scheduling(models.TextChoices):
        OPEN = "open", _("Open")
        DRAINING = "draining", _("Draining")  # no new jobs; running ones finish
        DISABLED = "disabled", _("Disabled")  # no new jobs; running ones are stopped

    class Gateway(models.TextChoices):
        UNKNOWN = "unknown", _("Not checked yet")
        OK = "ok", _("Reachable")
        REFUSED = "refused", _("Refused")
        TIMEOUT = "timeout", _("No answer")
        PROPOSED = "proposed", _("Waits for approval")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(_("name"), max_length=63)
    local = models.BooleanField(
        _("local"), default=False, help_text=_("runs beside the control plane and takes CPU jobs")
    )
    credential_hash = models.CharField(
        _("credential hash"), max_length=64, blank=True, help_text=_("SHA-256 of the secret, hex")
    )
    created_at = models.DateTimeField(_("created at"), db_default=Now())
    revoked_at = models.DateTimeField(_("revoked at"), null=True, blank=True)
    forgotten_at = models.DateTimeField(
        _("forgotten at"),
        null=True,
        blank=True,
        help_text=_("an operator said that it is gone for good; its row stays because history names it"),
    )
    scheduling = models.CharField(_("scheduling"), max_length=16, choices=Scheduling, default=Scheduling.OPEN)
    scheduling_reason = models.CharField(_("reason"), max_length=255, blank=True)
    expected_online = models.CharField(
        _("expected hours"), max_length=255, blank=True, help_text=_('free text: "Mon–Fri 9–18"')
    )

    session = models.PositiveIntegerField(
        _("session"), default=0, help_text=_("grows with each register; older sessions are refused")
    )
    beat = models.PositiveBigIntegerField(
        _("heartbeat number"), default=0, help_text=_("number of the last heartbeat of this session")
    )
    last_seen_at = models.DateTimeField(_("last heard of"), null=True, blank=True)
    registered_at = models.DateTimeField(_("registered at"), null=True, blank=True)
    accepting = models.BooleanField(
        _("accepts jobs"), default=True, help_text=_("the worker's own wish, e.g. paused by its owner")
    )
    paused_reason = models.CharField(_("why paused"), max_length=512, blank=True)

    # A worker whose reports are refused is alive, and nothing that it says is known (`workers/refusals.py`).
    refused_since = models.DateTimeField(
        _("reports refused since"),
        null=True,
        blank=True,
        help_text=_("since when its reports are refused as invalid; empty where they are taken"),
    )
    refused_errors = models.JSONField(
        _("refused fields"), null=True, blank=True, help_text=_("[[field, sentence]] of the last refused report")
    )

    gateway_url = models.CharField(
        _("gateway address"), max_length=255, blank=True, help_text=_("approved; the only address we ever call")
    )
    gateway_proposed_url = models.CharField(_("proposed gateway address"), max_length=255, blank=True)
    gateway_fixed = models.BooleanField(
        _("gateway set by an operator"), default=False, help_text=_("set by an operator: proposals never replace it")
    )
    gateway_status = models.CharField(_("gateway"), max_length=16, choices=Gateway, default=Gateway.UNKNOWN)
    gateway_detail = models.CharField(_("what the gateway said"), max_length=255, blank=True)
    gateway_checked_at = models.DateTimeField(_("gateway checked at"), null=True, blank=True)
    enrolled_from = models.GenericIPAddressField(_("enrolled from"), null=True, blank=True)

    # What it last said of itself. Shown and used for scheduling; never identity.
    hostname = models.CharField(_("host name"), max_length=255, blank=True)
    version = models.CharField(_("version"), max_length=64, blank=True)
    executor = models.CharField(_("runs jobs with"), max_length=16, blank=True)
    engine_id = models.CharField(_("engine id"), max_length=128, blank=True)
    features = ArrayField(models.CharField(max_length=64), verbose_name=_("features"), default=list, blank=True)
    max_gpu_jobs = models.PositiveSmallIntegerField(_("most GPU jobs"), default=0)
    max_cpu_jobs = models.PositiveSmallIntegerField(_("most CPU jobs"), default=0)
    driver_gpu_count = models.PositiveSmallIntegerField(
        _("GPUs of the driver"), null=True, blank=True, help_text=_("the driver's own count")
    )
    capabilities = models.JSONField(
        _("capabilities"), default=dict, blank=True, help_text=_("the whole report, for people")
    )
    disk = models.JSONField(_("disk"), default=dict, blank=True)
    doctor = models.JSONField(_("doctor"), default=list, blank=True)
    inventory = models.JSONField(
        _("inventory"),
        null=True,
        blank=True,
        help_text=_("leases that its last report listed; null where its engine did not answer"),
    )
    foreign_leases = models.JSONField(
        _("unknown leases"), default=list, blank=True, help_text=_("leases it holds that we do not know")
    )
    hold_facts = models.JSONField(
        _("what is held"),
        default=dict,
        blank=True,
        help_text=_("by lease: kind and gpus of those we do not know, and the reason why a GPU's memory is still held"),
    )
    removals = models.JSONField(
        _("removals asked for"),
        null=True,
        blank=True,
        help_text=_("of those, the leases whose containers an operator wants removed"),
    )

    objects = WorkerQuerySet.as_manager()

    class Meta:
        verbose_name, verbose_name_plural = _("worker"), _("workers")
        constraints = [
            models.UniqueConstraint(Lower("name"), condition=Q(forgotten_at=None), name="one_worker_per_name")
        ]
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def gpu_paused_reason(self) -> str:
        """Why it takes no GPU jobs now, while it takes others, as it says; "" where it takes them."""
        return str(self.capabilities.get("gpu_paused_reason") or "")

    def silent_since(self, *, up_since: datetime) -> datetime | None:
        """Since when nothing was heard, counted from our own start at the earliest. None: never heard of."""
        return None if self.last_seen_at is None else max(self.last_seen_at, up_since)

    def is_online(self, *, now: datetime, up_since: datetime) -> bool:
        """Whether it was heard within stale_seconds, by the database's clock."""
        since = self.silent_since(up_since=up_since)
        if since is None or self.revoked_at is not None:
            return False
        return now - since < timedelta(seconds=settings.OPENFACE_GPU_WORKER_STALE_SECONDS)


class Gpu(models.Model):
    """A GPU as its worker last described it. A GPU is its UUID; the index is for display."""

    worker = models.ForeignKey(Worker, verbose_name=_("worker"), on_delete=models.PROTECT, related_name="gpus")
    uuid = models.CharField(_("UUID"), max_length=128)
    index = models.PositiveSmallIntegerField(_("number"), default=0)
    vendor = models.CharField(_("vendor"), max_length=64, blank=True)
    model = models.CharField(_("model"), max_length=128, blank=True)
    total_vram_mib = models.PositiveIntegerField(
        _("VRAM (MiB)"), default=0, help_text=_("the largest ever reported for this UUID")
    )
    free_vram_mib = models.PositiveIntegerField(_("free VRAM (MiB)"), null=True, blank=True)
    ours = models.JSONField(_("use by jobs"), default=list, blank=True, help_text="[{lease, mib or null}]")
    foreign = models.JSONField(_("use by others"), default=list, blank=True, help_text="[{pid, name, mib}]")
    doubts = models.JSONField(
        _("doubtful figures"),
        default=list,
        blank=True,
        help_text=_("[{code, mib}]: figures that cannot be true, unused"),
    )
    utilization_pct = models.FloatField(_("utilisation (%)"), null=True, blank=True)
    temperature_c = models.FloatField(_("temperature (°C)"), null=True, blank=True)
    power_w = models.FloatField(_("power (W)"), null=True, blank=True)
    compute_capability = models.CharField(_("compute capability"), max_length=16, blank=True)
    mig = models.BooleanField(_("MIG"), default=False)
    healthy = models.BooleanField(_("healthy"), default=True, help_text=_("by its worker's last report"))
    good_reports = models.PositiveSmallIntegerField(
        _("good reports"),
        default=GOOD_REPORTS,
        help_text=_("heartbeats in a row in which it was well, as far as they are counted"),
    )
    error = models.CharField(_("error"), max_length=512, blank=True)
    simulated = models.BooleanField(_("simulated"), default=False)
    present = models.BooleanField(_("listed"), default=True, help_text=_("listed in the worker's last report"))
    forgotten_at = models.DateTimeField(
        _("forgotten at"),
        null=True,
        blank=True,
        help_text=_("an operator said that it is gone for good; the next report of it ends that"),
    )
    reported_at = models.DateTimeField(_("reported at"), null=True, blank=True)

    class Meta:
        verbose_name, verbose_name_plural = _("GPU"), _("GPUs")
        constraints = [models.UniqueConstraint(fields=["worker", "uuid"], name="one_row_per_worker_and_gpu")]
        indexes = [models.Index(fields=["uuid"], name="gpu_by_uuid")]
        ordering = ["index", "uuid"]

    def __str__(self) -> str:
        return f"{self.model or 'GPU'} ({self.uuid})"


class EnrollmentToken(models.Model):
    """A right to enroll one worker once. Only the token's hash is kept."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    token_hash = models.CharField(max_length=64, unique=True)
    worker_name = models.CharField(_("worker's name"), max_length=63)
    local = models.BooleanField(_("local"), default=False)
    gateway_url = models.CharField(
        _("gateway address"), max_length=255, blank=True, help_text=_("approved in advance by the operator")
    )
    replaces = models.ForeignKey(
        Worker, verbose_name=_("replaces"), null=True, blank=True, on_delete=models.CASCADE, related_name="+"
    )
    created_at = models.DateTimeField(_("created at"), db_default=Now())
    created_by = models.CharField(_("created by"), max_length=150, blank=True)
    expires_at = models.DateTimeField(_("expires at"))
    used_at = models.DateTimeField(_("used at"), null=True, blank=True)
    nonce_hash = models.CharField(
        max_length=64, blank=True, help_text=_("of the call that used the token, so that it can be repeated")
    )
    worker = models.ForeignKey(
        Worker, verbose_name=_("worker"), null=True, blank=True, on_delete=models.CASCADE, related_name="tokens"
    )
    revoked_at = models.DateTimeField(_("revoked at"), null=True, blank=True)

    class Meta:
        verbose_name, verbose_name_plural = _("enrollment token"), _("enrollment tokens")
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"token for {self.worker_name}"


class EnrollmentAttempt(models.Model):
    """Calls of enroll per address and minute; counted in the database, for all processes together."""

    address = models.GenericIPAddressField()
    minute = models.DateTimeField()
    count = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["address", "minute"], name="one_count_per_address_and_minute"),
            models.CheckConstraint(condition=Q(count__gte=0), name="count_is_not_negative"),
        ]

    def __str__(self) -> str:
        return f"{self.address}: {self.count}"
