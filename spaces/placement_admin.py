"""The admin's way to place a Space: choose, read what it does, confirm."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _t
from django.utils.translation import gettext_lazy as _

from spaces import placement, words
from spaces.models import Space
from spaces.placement import REASON_MAX_LENGTH, PlacementRefused, Wish
from spaces.placement_preview import preview
from spaces.placement_views import told


class PlacementForm(forms.Form):
    """The wish of an operator. Valid when it can be set."""

    placement = forms.ChoiceField(label=_("Where it may run"), choices=lambda: list(words.PLACEMENTS.items()))
    worker = forms.ChoiceField(label=_("The worker"), required=False)
    reason = forms.CharField(
        label=_("Why (kept in the audit, shown in the Space's history)"),
        required=False,
        max_length=REASON_MAX_LENGTH,
        widget=forms.TextInput(attrs={"class": "vTextField"}),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        names = [(worker.name, worker.name) for worker in placement.nameable_workers()]
        self.fields["worker"].choices = [("", "–"), *names]  # type: ignore[attr-defined]  # it is a ChoiceField

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if "placement" in cleaned and "worker" in cleaned:
            try:
                cleaned["wish"] = placement.wish(cleaned["placement"], cleaned["worker"])
            except PlacementRefused as error:
                raise forms.ValidationError(str(error)) from None
        return cleaned


def placement_view(request: HttpRequest, object_id: int) -> HttpResponse:
    """Ask, show, and set after a second yes."""
    if not placement.may_place(request.user):
        raise PermissionDenied
    space = get_object_or_404(Space.objects.select_related("placement_worker"), pk=object_id)
    present = Wish.of(space)
    initial = {"placement": present.placement.value, "worker": present.worker_name}
    form = PlacementForm(request.POST if request.method == "POST" else None, initial=initial)
    judged = None
    if request.method == "POST" and form.is_valid():
        wish: Wish = form.cleaned_data["wish"]
        if "confirmed" in request.POST:
            return _set(request, space, wish, form.cleaned_data["reason"])
        judged = preview(space, wish)
    context = {
        **admin.site.each_context(request),
        "title": _t("Where %(space)s may run") % {"space": space},
        "space": space,
        "form": form,
        "preview": judged,
        "opts": Space._meta,
    }
    return TemplateResponse(request, "admin/spaces/space/placement.html", context)


def _set(request: HttpRequest, space: Space, wish: Wish, reason: str) -> HttpResponse:
    try:
        done = placement.place(space.pk, wish, actor=request.user, request=request, reason=reason.strip())
    except PlacementRefused as error:  # it was revoked while he read
        messages.error(request, str(error))
    else:
        messages.success(request, told(done))
    return redirect("admin:spaces_space_change", space.pk)
