"""The right of a worker to run a job, and the GPU memory that goes with it."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from jobs.models.job import Job


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
