"""The Placement tab of a Space: for operators, who see what a choice does before they make it."""

from __future__ import annotations

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from spaces import placement, words
from spaces.placement import PlacementRefused, Wish
from spaces.placement_preview import choices, preview
from spaces.space_page import SpacePage, page_context, space_view


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@space_view
def placement_tab(request: HttpRequest, page: SpacePage) -> HttpResponseBase:
    """GET shows the choice and what it would do; POST makes it. 403 for anybody who is no operator."""
    if not page.operator:
        raise PermissionDenied(_("Only operators decide where a Space runs."))
    if request.method == "POST":
        return _place(request, page)
    refused = ""
    try:
        chosen = _asked(request, page)
    except PlacementRefused as error:
        chosen, refused = None, str(error)
    context = page_context(
        page,
        "placement",
        present=Wish.of(page.space),
        choices=choices(page.space),
        workers=placement.nameable_workers(),
        value=request.GET.get("placement") or page.space.placement,
        worker_value=request.GET.get("worker") or Wish.of(page.space).worker_name,
        preview=preview(page.space, chosen) if chosen is not None else None,
        refused=refused,
    )
    part = request.GET.get("part") == "preview"
    return render(request, "spaces/_placement_preview.html" if part else "spaces/placement.html", context)


def _asked(request: HttpRequest, page: SpacePage) -> Wish:
    """The wish in the address, else the present placement. A worker counts only beside the placement that names one."""
    value = request.GET.get("placement", "")
    if not value:
        return Wish.of(page.space)
    return placement.wish(value, request.GET.get("worker") if value == placement.Placement.WORKER else None)


def _place(request: HttpRequest, page: SpacePage) -> HttpResponseBase:
    try:
        wish = placement.wish(request.POST.get("placement", ""), request.POST.get("worker"))
        done = placement.place(
            page.space.pk, wish, actor=request.user, request=request, reason=request.POST.get("reason", "").strip()
        )
    except PlacementRefused as error:
        messages.error(request, str(error))
    else:
        messages.success(request, told(done))
    answer = redirect("space_placement", page.space.owner, page.space.name)
    answer.status_code = 303  # the browser reads the page with GET, whatever it sent
    return answer


def told(done: placement.Placed) -> str:
    """Say what came of a placement, in the operator's language."""
    if not done.changed:
        return _("It is placed like that already.")
    said = [_("Placed: %(where)s.") % {"where": words.placement(done.after.placement, done.after.worker_name)}]
    if done.moved:
        said.append(_("The run in line has the new needs and kept its place."))
    if done.stays is not None and done.stays.stop_requested_at is None:
        said.append(_("What runs now goes on where it is, until somebody restarts it."))
    return " ".join(said)
