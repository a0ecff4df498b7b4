"""What happened: to jobs, and by the hands of people. Rows that are written once."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from jobs.models.job import Job
from jobs.models.lease import Lease
from jobs.state_names import STATE_CHOICES


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
