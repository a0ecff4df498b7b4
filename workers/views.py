"""The fleet page: where Spaces run. Anybody who is signed in may look; details are for operators."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from spaces.access import visible_spaces
from spaces.why import Reader
from workers import overview
from workers.fleet_page import page


@require_safe
@never_cache
@login_required
def fleet(request: HttpRequest) -> HttpResponse:
    """Show every worker with its GPUs, what needs a look first."""
    operator = bool(getattr(request.user, "is_staff", False))
    seen = () if operator else {str(space) for space in visible_spaces(request.user)}
    drawn = page(overview.fleet(), reader=Reader(spaces=seen, operator=operator))
    part = "workers/_fleet.html" if request.GET.get("part") == "list" else "workers/fleet.html"
    return render(request, part, {"section": "fleet", "page": drawn, "operator": operator})
