"""Pages of the portal: the list, a Space's App and Activity tabs, and the acts Start, Stop and Restart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from jobs.models import Job
from jobs.states import JobState
from spaces import activity, ailment, cards, launch
from spaces.access import visible_spaces
from spaces.api import status_of
from spaces.forge.errors import EmptyRepository, Forbidden, ForgeError
from spaces.space_page import SpacePage, page_context, space_view
from spaces.stage_page import stage_context


@require_safe
@never_cache
def space_list(request: HttpRequest) -> HttpResponse:
    """Show the Spaces that the visitor may read, narrowed by state, topic, ownership and words."""
    all_cards = cards.cards(visible_spaces(request.user), username=request.user.get_username())
    filters = cards.Filters(
        state=request.GET.get("state", ""),
        topic=request.GET.get("topic", ""),
        mine="mine" in request.GET,
        query=request.GET.get("q", "").strip(),
    )
    context: dict[str, Any] = {
        "section": "spaces",
        "all_cards": all_cards,
        "cards": [card for card in all_cards if filters.keep(card)],
        "filters": filters,
        "groups": _groups(all_cards, filters),
        "topics": cards.topics(all_cards),
        "mine": sum(card.mine for card in all_cards),
        "running": cards.counts(all_cards)["running"],
    }
    part = "spaces/_list.html" if request.GET.get("part") == "list" else "spaces/list.html"
    return render(request, part, context)


@require_safe
@never_cache
@space_view
def app(request: HttpRequest, page: SpacePage) -> HttpResponseBase:
    """Show the running app in a frame, or the stage: what is going on, why, and what to do."""
    part = request.GET.get("part", "")
    if part == "head":
        tab = request.GET.get("tab", "app")
        return render(request, "spaces/_head.html", page_context(page, tab))
    if part == "ailment":
        ails = ailment.of(page.job) if page.job is not None else None
        return render(request, "spaces/_ailment.html", page_context(page, "app", ailment=ails))
    context = page_context(page, "app", **stage_context(page, request.user))
    return render(request, "spaces/_stage.html" if part == "stage" else "spaces/app.html", context)


@require_safe
@never_cache
@space_view
def history(request: HttpRequest, page: SpacePage) -> HttpResponseBase:
    """Show every move of every run."""
    before = request.GET.get("before", "")
    shown = activity.runs(
        page.space,
        user=request.user,
        before=int(before) if before.isdecimal() and len(before) < 19 else None,
    )
    context = page_context(page, "activity", runs=shown, more=shown[-1].job.seq if _more(shown) else None)
    part = "spaces/_runs.html" if request.GET.get("part") == "runs" else "spaces/activity.html"
    return render(request, part, context)


@require_safe
@never_cache
@space_view
def status(request: HttpRequest, page: SpacePage) -> HttpResponseBase:
    """Answer for scripts: where the Space stands, in stable codes, with sentences beside them."""
    return JsonResponse(status_of(page, request.user))


@require_POST
@space_view
def start(request: HttpRequest, page: SpacePage) -> HttpResponseBase:
    """Start the newest commit. A Space that is on its way or running already stays as it is."""
    return _act(request, page, lambda: launch.start(page.space, user=request.user, request=request))


@require_POST
@space_view
def restart(request: HttpRequest, page: SpacePage) -> HttpResponseBase:
    """Start the newest commit in place of what runs now.

    The form says which state it showed: somebody who wanted to leave a lost worker must not stop an app that is back.
    """
    seen = request.POST.get("seen", "")
    if seen == JobState.UNAVAILABLE and page.running:
        messages.success(request, _("It is back: its worker answers again, so nothing was restarted."))
        return redirect("space", page.space.owner, page.space.name)
    return _act(request, page, lambda: launch.start(page.space, user=request.user, replace=True, request=request))


@require_POST
@space_view
def stop(request: HttpRequest, page: SpacePage) -> HttpResponseBase:
    """Stop the Space, wherever it is. A second stop changes nothing."""
    return _act(request, page, lambda: launch.stop(page.space, user=request.user, request=request))


def _act(request: HttpRequest, page: SpacePage, act: Callable[[], object]) -> HttpResponse:
    """Do what a person asked, say what came of it, and go back to the Space."""
    if not page.may_write:
        # Said here, before the act, so that the sentence is in the reader's language.
        raise PermissionDenied(page.why_not)
    try:
        act()
    except Forbidden as error:
        raise PermissionDenied(str(error)) from None
    except EmptyRepository:
        messages.error(request, _("The repository has no commit yet: push one, then start it."))
    except ForgeError as error:
        messages.error(request, str(error))
    answer = redirect("space", page.space.owner, page.space.name)
    answer.status_code = 303  # the browser reads the page with GET, whatever it sent
    return answer


def _groups(all_cards: list[cards.Card], filters: cards.Filters) -> list[dict[str, Any]]:
    """Return the state filters that lead to something, with their numbers."""
    counted = cards.counts(all_cards)
    return [
        {"value": value, "name": name, "glyph": glyph, "count": counted[value], "current": filters.state == value}
        for value, (name, glyph) in cards.GROUPS.items()
        if counted[value] or filters.state == value
    ]


def _more(shown: list[activity.Run]) -> bool:
    return (
        len(shown) == activity.RUNS_SHOWN
        and Job.objects.filter(space=shown[-1].job.space_id, seq__lt=shown[-1].job.seq).exists()
    )
