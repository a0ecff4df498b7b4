"""Jobs, leases, events and the audit for operators. State is read-only: it moves through the lifecycle alone."""

from __future__ import annotations

import csv
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html_join
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from jobs import audit, lifecycle
from jobs.line import COUNTED_PLACES
from jobs.models import AuditEvent, Job, JobEvent, Lease, Requirement, Reservation
from jobs.waiting import Waiting, why_waiting


class ReadOnly:
    """Mixin: for operators to look, never to change. An operator is whoever is staff, with no further rights given."""

    def has_module_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.is_active and request.user.is_staff)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.is_active and request.user.is_staff)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class EventsInline(ReadOnly, admin.TabularInline[JobEvent, Job]):
    model = JobEvent
    fields = ("at", "event", "from_state", "to_state", "ignored", "reason", "worker_name", "actor")
    extra = 0


class LeasesInline(ReadOnly, admin.TabularInline[Lease, Job]):
    model = Lease
    fields = ("attempt", "worker", "acquired_at", "expires_at", "released_at", "cleared_at")
    extra = 0


@admin.register(Job)
class JobAdmin(ReadOnly, admin.ModelAdmin[Job]):
    list_display = ("run", "state", "kind", "requirement", "worker", "attempts", "state_since", "reason")
    list_filter = ("state", "kind", "worker")
    search_fields = ("owner", "repo", "revision", "id")
    list_select_related = ("requirement", "worker")
    ordering = ("-seq",)
    inlines = (EventsInline, LeasesInline)
    actions = ("stop",)
    readonly_fields = ("place_in_line", "why_it_waits")

    @admin.display(description=_("job"), ordering="seq")
    def run(self, job: Job) -> str:
        """Without its state, which has a column of its own."""
        return f"{job.owner}/{job.repo}@{job.revision[:7]}"

    @admin.display(description=_("place in line"))
    def place_in_line(self, job: Job) -> str:
        waiting = self._waiting(job)
        if waiting is None or waiting.place is None:
            return "–"
        return f"> {COUNTED_PLACES}" if waiting.place_capped else str(waiting.place)

    @admin.display(description=_("why it waits"))
    def why_it_waits(self, job: Job) -> str:
        """In English as all reasons that are written down, and naming everybody: only operators are here."""
        waiting = self._waiting(job)
        if waiting is None:
            return "–"
        said = [sentence.reason for reason in waiting.workers for sentence in reason.sentences()]
        return format_html_join(mark_safe("<br>"), "{}", ((text,) for text in dict.fromkeys([waiting.sentence, *said])))

    def _waiting(self, job: Job) -> Waiting | None:
        """Judged once for the page that is drawn, whose job this is."""
        if not hasattr(job, "judged"):
            job.judged = why_waiting(job)  # type: ignore[attr-defined]  # kept on the object of this request
        judged: Waiting | None = job.judged  # type: ignore[attr-defined]
        return judged

    @admin.action(description=_("Stop the selected jobs"))
    def stop(self, request: HttpRequest, jobs: QuerySet[Job]) -> None:
        stopped = 0
        for job in jobs.active():  # type: ignore[attr-defined]  # JobQuerySet, which admin types as QuerySet
            lifecycle.request_stop(job.pk, actor=request.user, reason="Stopped by an operator.")
            audit.record("stop", obj=job, actor=request.user, request=request)
            stopped += 1
        text = ngettext("%d job was told to stop.", "%d jobs were told to stop.", stopped) % stopped
        skipped = jobs.count() - stopped
        if skipped:
            text += " " + ngettext("%d had ended already.", "%d had ended already.", skipped) % skipped
        self.message_user(request, text, messages.SUCCESS if stopped else messages.WARNING)


@admin.action(description=_("Export the selected rows as CSV"))
def export_csv(model_admin: admin.ModelAdmin[Any], request: HttpRequest, rows: QuerySet[Any]) -> HttpResponse:
    """The selected rows with all their columns."""
    response = HttpResponse(content_type="text/csv; charset=utf-8")
    name = model_admin.model._meta.model_name
    response["Content-Disposition"] = f'attachment; filename="{name}.csv"'
    columns = [field.attname for field in model_admin.model._meta.concrete_fields]
    writer = csv.writer(response)
    writer.writerow(columns)
    for row in rows.values_list(*columns).iterator():
        writer.writerow([_harmless(value) for value in row])
    return response


def _harmless(value: Any) -> str:
    """A cell that a spreadsheet will not take for a formula."""
    text = "" if value is None else str(value)
    return f"'{text}" if text[:1] in "=+-@\t\r" else text


@admin.register(JobEvent)
class JobEventAdmin(ReadOnly, admin.ModelAdmin[JobEvent]):
    list_display = ("at", "job", "event", "from_state", "to_state", "worker_name", "revision", "reason", "ignored")
    list_filter = ("event", "ignored", "worker_name")
    search_fields = ("job__owner", "job__repo", "revision", "worker_name", "reason")
    list_select_related = ("job",)
    ordering = ("-id",)
    date_hierarchy = "at"
    actions = (export_csv,)


@admin.register(Lease)
class LeaseAdmin(ReadOnly, admin.ModelAdmin[Lease]):
    list_display = ("id", "job", "worker", "attempt", "acquired_at", "expires_at", "released_at", "cleared_at")
    list_filter = ("worker", ("released_at", admin.EmptyFieldListFilter), ("cleared_at", admin.EmptyFieldListFilter))
    search_fields = ("id", "job__owner", "job__repo", "worker__name")
    list_select_related = ("job", "worker")
    ordering = ("-acquired_at",)


@admin.register(AuditEvent)
class AuditEventAdmin(ReadOnly, admin.ModelAdmin[AuditEvent]):
    list_display = ("at", "actor_name", "act", "object_type", "object_name", "reason", "address")
    list_filter = ("act", "object_type")
    search_fields = ("actor_name", "object_name", "object_id", "reason")
    date_hierarchy = "at"
    actions = (export_csv,)


@admin.register(Requirement)
class RequirementAdmin(ReadOnly, admin.ModelAdmin[Requirement]):
    list_display = ("__str__", "kind", "gpu_count", "vram_mib", "exclusive", "features", "worker")
    list_select_related = ("worker",)


@admin.register(Reservation)
class ReservationAdmin(ReadOnly, admin.ModelAdmin[Reservation]):
    list_display = ("gpu", "lease", "mib", "exclusive", "cleared_at")
    list_filter = (("cleared_at", admin.EmptyFieldListFilter), "exclusive")
    list_select_related = ("gpu", "lease")
