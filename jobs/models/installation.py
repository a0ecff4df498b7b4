"""Facts of this installation as a whole, each in a table of one row."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now


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
    """One row: which workers take part here, as the web process that started last was told."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1, editable=False)
    enabled = models.BooleanField()
    simulated_gpus = models.BooleanField(
        null=True, help_text="whether simulated GPUs take jobs; null: no process has said so since it can"
    )
    since = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="one_remote_switch_row")]

    def __str__(self) -> str:
        return f"remote GPU workers {'on' if self.enabled else 'off'} since {self.since}"
