"""A person's own tokens: made on a page that shows each once, listed with their last use, revoked there."""

from __future__ import annotations

from datetime import date, timedelta

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.dateparse import parse_date
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from jobs.clock import database_now
from spaces import tokens
from spaces.models import PersonalToken
from spaces.tokens import Issued, TokenRefused

USUAL_DAYS = 90


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@login_required
def token_page(request: HttpRequest) -> HttpResponseBase:
    """GET lists the visitor's tokens; POST makes one and shows it, this once. A refusal says why, in place: 400."""
    if request.method != "POST":
        return _page(request)
    name, ends_on = request.POST.get("name", ""), request.POST.get("ends_on", "")
    try:
        issued = tokens.issue(_person(request), name=name, ends_on=_day(ends_on), request=request)
    except TokenRefused as error:
        return _page(request, name=name, ends_on=ends_on, refused=str(error))
    return _page(request, issued=issued)


@require_POST
@login_required
def revoke(request: HttpRequest, token_id: int) -> HttpResponseBase:
    """End one of the visitor's tokens. 404 for everybody else's; a second time changes nothing."""
    row = PersonalToken.objects.filter(pk=token_id).first()
    if row is not None:
        if row.user_id != request.user.pk:
            raise Http404("There is no such token.")
        tokens.revoke(row, actor=_person(request), request=request)
        messages.success(request, _("%(name)s is revoked: what shows it is refused from now on.") % {"name": row.name})
    answer = redirect("tokens")
    answer.status_code = 303  # the browser reads the page with GET, whatever it sent
    return answer


def _page(
    request: HttpRequest, *, issued: Issued | None = None, name: str = "", ends_on: str = "", refused: str = ""
) -> HttpResponseBase:
    today = timezone.localdate()
    context = {
        "section": "tokens",
        "tokens": PersonalToken.objects.filter(user=_person(request)),
        "now": database_now(),
        "issued": issued,
        "field": "X-OpenFace-Authorization",
        "example": settings.OPENFACE_RUNTIME_ORIGIN.replace("{space}", "SPACE") + "/run/OWNER/NAME/",
        "refused": refused,
        "name": name,
        "ends_on": ends_on or (today + timedelta(days=USUAL_DAYS)).isoformat(),
        "first_day": today.isoformat(),
        "last_day": (today + timedelta(days=tokens.LONGEST_DAYS)).isoformat(),
    }
    return render(request, "spaces/tokens.html", context, status=400 if refused else 200)


def _person(request: HttpRequest) -> User:
    assert isinstance(request.user, User), "who is not signed in does not come so far"
    return request.user


def _day(text: str) -> date:
    try:
        day = parse_date(text)
    except ValueError:  # of that form, and in no calendar
        day = None
    if day is None:
        raise TokenRefused(_("Name the last day on which it is good."))
    return day
