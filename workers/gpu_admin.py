"""GPUs for operators: what each was last seen to be, what is reserved on it, and what a job could still be given."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html_join
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from jobs import offers
from jobs.admin import ReadOnly
from jobs.models import Reservation
from jobs.vram import GpuOffer, available_mib, in_order, reserved_mib
from spaces.why import Reader
from workers import gpus
from workers.api.authentication import address_of
from workers.gpu_rows import flags
from workers.models import Gpu, Worker

OPERATOR = Reader(spaces=(), operator=True)


class GpuInline(ReadOnly, admin.TabularInline[Gpu, Worker]):
    """The GPUs of a worker, on the worker's page."""

    model = Gpu
    fields = ("index", "model", "uuid", "total_vram_mib", "free_vram_mib", "healthy", "error", "simulated", "present")
    extra = 0

    def get_queryset(self, request: HttpRequest) -> QuerySet[Gpu]:
        return super().get_queryset(request).filter(forgotten_at=None)


class ReservationsInline(ReadOnly, admin.TabularInline[Reservation, Gpu]):
    """Who holds how much of a GPU now."""

    model = Reservation
    fields = ("job", "mib", "used", "exclusive", "over_since")
    readonly_fields = ("job", "used")
    ordering = ("id",)
    extra = 0

    def get_queryset(self, request: HttpRequest) -> QuerySet[Reservation]:
        return super().get_queryset(request).filter(cleared_at=None).select_related("lease__job", "gpu")

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.is_staff)

    @admin.display(description=_("Job"))
    def job(self, reservation: Reservation) -> str:
        return str(reservation.lease.job)

    @admin.display(description=_("Measured (MiB)"))
    def used(self, reservation: Reservation) -> int | None:
        uses = {entry["lease"]: entry["mib"] for entry in reservation.gpu.ours}
        return uses.get(str(reservation.lease_id))


@admin.register(Gpu)
class GpuAdmin(ReadOnly, admin.ModelAdmin[Gpu]):
    """To look; the acts are to trust a GPU again that failed, and to forget one that is gone."""

    list_display = ("model", "worker", "index", "total_vram_mib", "reserved", "available", "remarks", "uuid")
    list_filter = ("worker", "healthy", "simulated", "present", ("forgotten_at", admin.EmptyFieldListFilter))
    search_fields = ("uuid", "model", "worker__name")
    list_select_related = ("worker",)
    ordering = ("worker__name", "index")
    inlines = (ReservationsInline,)
    actions = ("trust", "forget")

    def get_fields(self, request: HttpRequest, obj: Gpu | None = None) -> list[Any]:
        computed = ["reserved", "available", "remarks"]
        return [field.name for field in Gpu._meta.fields if field.name != "id"] + computed

    def get_readonly_fields(self, request: HttpRequest, obj: Gpu | None = None) -> list[Any]:
        return self.get_fields(request, obj)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.is_staff)

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        changes = super().get_changelist_instance(request)
        _look(changes.result_list)
        return changes

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Gpu | None:
        gpu = super().get_object(request, object_id, from_field)
        _look([] if gpu is None else [gpu])
        return gpu

    @admin.display(description=_("Reserved (MiB)"))
    def reserved(self, gpu: Gpu) -> int | None:
        offer = _offer_of(gpu)
        return None if offer is None else reserved_mib(offer)

    @admin.display(description=_("Could be given (MiB)"))
    def available(self, gpu: Gpu) -> int | None:
        offer = _offer_of(gpu)
        return None if offer is None else available_mib(offer) if in_order(offer) else 0

    @admin.display(description=_("Remarks"))
    def remarks(self, gpu: Gpu) -> str:
        offer = _offer_of(gpu)
        if offer is None:
            return str(_("Forgotten: it counts again when its worker lists it.")) if gpu.forgotten_at else ""
        told = flags(offer, reader=OPERATOR, last_listed=gpu.reported_at)
        return format_html_join(" ", "{}", ((flag,) for flag in told))

    @admin.action(description=_("Use the selected GPUs again at once, although they failed"))
    def trust(self, request: HttpRequest, chosen: QuerySet[Gpu]) -> None:
        address = address_of(request) or None
        trusted = sum(gpus.trust(gpu.pk, actor=request.user, address=address) for gpu in chosen)
        text = ngettext("%d GPU is used again.", "%d GPUs are used again.", trusted) % trusted
        self.message_user(request, text, messages.SUCCESS if trusted else messages.WARNING)

    @admin.action(description=_("Forget the selected GPUs that are gone"))
    def forget(self, request: HttpRequest, chosen: QuerySet[Gpu]) -> None:
        address = address_of(request) or None
        forgotten = sum(gpus.forget(gpu.pk, actor=request.user, address=address) for gpu in chosen)
        text = ngettext("%d GPU is forgotten.", "%d GPUs are forgotten.", forgotten) % forgotten
        if skipped := chosen.count() - forgotten:
            text += (
                " "
                + ngettext(
                    "%d is not: its worker lists it, or something is reserved there.",
                    "%d are not: their workers list them, or something is reserved there.",
                    skipped,
                )
                % skipped
            )
        self.message_user(request, text, messages.SUCCESS if forgotten else messages.WARNING)


def _look(rows: Iterable[Gpu]) -> None:
    """Look at the fleet once for all rows, as a claim does, and keep with each row what was seen of it."""
    shown = list(rows)
    seen = {gpu.gpu_id: gpu for offer in offers.offers_for([row.worker_id for row in shown]) for gpu in offer.gpus}
    for row in shown:
        row.__dict__["offer"] = seen.get(row.pk)


def _offer_of(row: Gpu) -> GpuOffer | None:
    offer: GpuOffer | None = row.__dict__.get("offer")
    return offer
