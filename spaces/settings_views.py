"""The Settings tab of a Space: for people who may write to it. What they set counts from the next start on."""

from __future__ import annotations

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from spaces import escaped, owner_settings
from spaces.owner_settings import InForce, Settings
from spaces.space_page import SpacePage, page_context, space_view


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@space_view
def settings_tab(request: HttpRequest, page: SpacePage) -> HttpResponseBase:
    """GET shows the settings, what is in force, and what left the prefix; POST changes them. 403 for who only reads."""
    _allow(page)
    if request.method == "POST":
        return _change(request, page)
    job = page.job if page.active and not page.batch else None
    in_force = None if job is None else InForce.of(job)
    context = page_context(
        page,
        "settings",
        present=Settings.of(page.space),
        in_force=in_force,
        base_path=page.space.run_path,
        escaped=escaped.of(page.space),
        most=escaped.MOST_PATHS,
    )
    return render(request, "spaces/settings.html", context)


@require_POST
@space_view
def forget_escaped(request: HttpRequest, page: SpacePage) -> HttpResponseBase:
    """Begin to count anew, after the app was mended."""
    _allow(page)
    escaped.forget(page.space)
    messages.success(request, _("The list is empty. What leaves the prefix from now on appears within a minute."))
    return _back(page)


def _change(request: HttpRequest, page: SpacePage) -> HttpResponseBase:
    wanted = Settings.read(request.POST.get("prefix", ""), request.POST.get("rewrite_host", ""))
    if wanted is None:
        messages.error(request, _("That is no setting: choose one of those on the page."))
    elif not owner_settings.change(page.space.pk, wanted, actor=request.user, request=request):
        messages.success(request, _("It is set like that already."))
    elif page.active:
        messages.success(request, _("Saved. It counts from the next start: restart the Space to have it now."))
    else:
        messages.success(request, _("Saved. It counts from the next start."))
    return _back(page)


def _allow(page: SpacePage) -> None:
    if not page.may_write:
        raise PermissionDenied(_("Only people who may write to %(space)s see and set this.") % {"space": page.space})


def _back(page: SpacePage) -> HttpResponseBase:
    answer = redirect("space_settings", page.space.owner, page.space.name)
    answer.status_code = 303  # the browser reads the page with GET, whatever it sent
    return answer
