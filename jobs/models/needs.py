"""What a job needs, as a class of its own: scheduling is decided once per class."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _


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
