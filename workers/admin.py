"""Workers, GPUs and enrollment tokens for operators. Every act is one function of `standing` or `enrollment`.

Acts ask first, on a page that names the jobs they touch. Tokens are issued by the management command only; here they
are listed and revoked, and never shown: nobody has them any more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _t
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from jobs import audit
from jobs.admin import ReadOnly
from jobs.clock import now_and_up_since
from jobs.models import Job
from jobs.states import JobState
from workers import enrollment, former, refusals, standing
from workers.api.authentication import address_of
from workers.errors import WorkerError
from workers.gpu_admin import GpuInline
from workers.inventory import drain_of, left_on
from workers.lease_admin import FREE_GPU, REMOVE_HELD, lease_action
from workers.models import EnrollmentToken, Worker


def _fate_when_disabled(job: Job) -> Any:
    return _("stays in the line, for other workers") if job.state == JobState.QUEUED else _("will be stopped")


def _fate_when_revoked(job: Job) -> Any:
    match job.state:
        case JobState.RUNNING | JobState.UNAVAILABLE:
            return _("will be unavailable until somebody stops or restarts it")
        case JobState.STOPPING:
            return _("counts as stopped")
        case _:
            return _("goes back to the line")


@dataclass(frozen=True)
class Act:
    """One act of the admin: what it is called, what it does, in a sentence, and what becomes of the jobs."""

    title: Any
    explanation: Any
    do: Callable[..., Worker]
    with_reason: bool = True
    fate: Callable[[Job], Any] | None = None  # what becomes of a job on the worker; None: nothing
    placed: Any = ""  # what becomes of Spaces that an operator placed there; "": nothing


ACTS: dict[str, Act] = {
    "drain": Act(_("Drain"), _("They get no new jobs; those that run may finish."), standing.drain),
    "resume": Act(_("Resume"), _("They take jobs again."), standing.resume),
    "disable": Act(
        _("Disable"),
        _("They get no new jobs, and those that run are stopped."),
        standing.disable,
        fate=_fate_when_disabled,
        placed=_(
            "They are placed on that worker by an operator, and wait until it is enabled or they are placed anew."
        ),
    ),
    "enable": Act(_("Enable"), _("They take jobs again."), standing.enable),
    "revoke": Act(
        _("Revoke"),
        _("Their credentials are void for good and their leases end. Repositories, logs and history stay."),
        standing.revoke,
        fate=_fate_when_revoked,
        placed=_("They are placed on that worker by an operator, and wait until somebody places them elsewhere."),
    ),
    "forget": Act(
        _("Forget"),
        _(
            "Only revoked workers with nothing on them. They leave every list for good, and their names are free for "
            "others. Their jobs, logs, events and results stay."
        ),
        former.forget,
    ),
    "approve_gateway": Act(
        _("Approve the proposed gateway address"),
        _("The control plane will send the traffic of Spaces, and the keys of their leases, to the proposed address."),
        standing.approve_gateway,
        with_reason=False,
    ),
    "refuse_gateway": Act(
        _("Refuse the proposed gateway address"),
        _("The proposal is dropped; an approved address stays."),
        standing.refuse_gateway,
        with_reason=False,
    ),
}


def _action(name: str) -> Callable[..., HttpResponse | None]:
    """An admin action that asks first and then calls the act for each worker."""
    act = ACTS[name]

    def action(model_admin: WorkerAdmin, request: HttpRequest, workers: QuerySet[Worker]) -> HttpResponse | None:
        if "confirmed" not in request.POST:
            return _ask(model_admin, request, name, act, workers)
        reason = {"reason": request.POST.get("reason", "")[:255]} if act.with_reason else {}
        done = 0
        for worker in workers:
            try:
                act.do(worker.pk, actor=request.user, address=address_of(request) or None, **reason)
            except WorkerError as error:
                model_admin.message_user(request, str(error), messages.WARNING)
            else:
                done += 1
        if done:
            text = ngettext("%(act)s: %(count)d worker.", "%(act)s: %(count)d workers.", done)
            model_admin.message_user(request, text % {"act": act.title, "count": done}, messages.SUCCESS)
        return None

    action.__name__ = name
    return admin.action(description=act.title)(action)


def _ask(
    model_admin: WorkerAdmin, request: HttpRequest, name: str, act: Act, workers: QuerySet[Worker]
) -> HttpResponse:
    touched = Job.objects.active().filter(leases__worker__in=workers, leases__released_at=None).order_by("seq")
    on_them = [(job, act.fate(job) if act.fate else "") for job in touched.select_related("worker")]
    context = {
        **admin.site.each_context(request),
        "title": act.title,
        "explanation": act.explanation,
        "act": act,
        "action": name,
        "checkbox": ACTION_CHECKBOX_NAME,
        "workers": workers,
        "jobs": on_them,
        "placed": standing.placed_on([worker.pk for worker in workers]) if act.placed else [],
        "opts": model_admin.model._meta,
    }
    return TemplateResponse(request, "admin/workers/confirm.html", context)


class ForgottenFilter(admin.SimpleListFilter):
    """Workers that are forgotten are shown to who asks for them only."""

    title = _("forgotten")
    parameter_name = "forgotten"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("only", _("Only these"))]

    def choices(self, changelist: Any) -> Any:
        hidden, *others = super().choices(changelist)
        return [{**hidden, "display": _t("Hidden")}, *others]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Worker]) -> QuerySet[Worker]:
        return queryset.filter(forgotten_at__isnull=self.value() != "only")


@admin.register(Worker)
class WorkerAdmin(admin.ModelAdmin[Worker]):
    """To look and to act. Only what a person knows better than the machine can be typed in."""

    list_display = (
        "name",
        "online",
        "reports",
        "scheduling",
        "left",
        "local",
        "last_seen_at",
        "gateway_status",
        "gateway_proposed_url",
        "version",
        "revoked_at",
    )
    list_filter = (
        "scheduling",
        "local",
        "gateway_status",
        ("revoked_at", admin.EmptyFieldListFilter),
        ForgottenFilter,
    )
    search_fields = ("name", "hostname", "gateway_url", "id")
    ordering = ("name",)
    inlines = (GpuInline,)
    actions = (*(_action(name) for name in ACTS), lease_action(REMOVE_HELD), lease_action(FREE_GPU))
    editable = ("expected_online",)
    hidden = ("credential_hash",)

    def get_fields(self, request: HttpRequest, obj: Worker | None = None) -> list[Any]:
        return [field.name for field in Worker._meta.fields if field.name not in self.hidden]

    def get_readonly_fields(self, request: HttpRequest, obj: Worker | None = None) -> list[Any]:
        return [name for name in self.get_fields(request, obj) if name not in self.editable]

    def has_module_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.is_staff)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.is_staff)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.is_staff)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False  # workers enroll

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False  # revoked, never deleted: history names it

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        self._clock = now_and_up_since()  # one look at the clock and at the leases for all rows
        self._left = left_on(Worker.objects.all())
        return super().changelist_view(request, extra_context)

    @admin.display(boolean=True, description=_("Online"))
    def online(self, worker: Worker) -> bool:
        now, up_since = self._clock
        return worker.is_online(now=now, up_since=up_since)

    @admin.display(description=_("Reports"))
    def reports(self, worker: Worker) -> str:
        """Which fields of its reports are refused, and since when; empty where they are taken."""
        return refusals.sentence(worker)

    @admin.display(description=_("Left on it"))
    def left(self, worker: Worker) -> str:
        """How far draining or disabling is; empty for a worker that is open."""
        now, up_since = self._clock
        online = worker.is_online(now=now, up_since=up_since)
        drain = None if worker.revoked_at else drain_of(worker, self._left.get(worker.pk, []), online=online)
        return drain.sentence() if drain else ""

    def save_model(self, request: HttpRequest, obj: Worker, form: Any, change: bool) -> None:
        """Write the typed fields only: the rest of the row may have changed since the form was drawn."""
        with transaction.atomic():
            before = Worker.objects.values(*self.editable).get(pk=obj.pk)
            obj.save(update_fields=list(self.editable))
            after = {name: getattr(obj, name) for name in self.editable}
            if before != after:
                audit.record(
                    "worker_edited",
                    obj=obj,
                    actor=request.user,
                    address=address_of(request) or None,
                    before=before,
                    after=after,
                )


@admin.register(EnrollmentToken)
class EnrollmentTokenAdmin(ReadOnly, admin.ModelAdmin[EnrollmentToken]):
    """Who may still enroll, and who did. The tokens themselves are nowhere."""

    list_display = ("worker_name", "created_by", "created_at", "expires_at", "used_at", "revoked_at", "worker")
    list_filter = (("used_at", admin.EmptyFieldListFilter), ("revoked_at", admin.EmptyFieldListFilter), "local")
    search_fields = ("worker_name", "created_by")
    list_select_related = ("worker",)
    ordering = ("-created_at",)
    exclude = ("token_hash", "nonce_hash")
    actions = ("revoke",)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.is_staff)

    @admin.action(description=_("Revoke the selected tokens"))
    def revoke(self, request: HttpRequest, tokens: QuerySet[EnrollmentToken]) -> None:
        address = address_of(request) or None
        revoked = sum(enrollment.revoke_token(token.pk, actor=request.user, address=address) for token in tokens)
        text = ngettext("%d token was revoked.", "%d tokens were revoked.", revoked) % revoked
        skipped = tokens.count() - revoked
        if skipped:
            text += " " + _t("%d were used or revoked already.") % skipped
        self.message_user(request, text, messages.SUCCESS if revoked else messages.WARNING)
