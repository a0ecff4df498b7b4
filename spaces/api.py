"""The owners' API: where a Space stands, in stable codes. The same eyes as the portal: who may not read it gets 404.

A session of the portal opens it; for a public Space nobody has to be signed in.
"""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponseBase, JsonResponse
from django.utils.cache import patch_vary_headers
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from jobs.delivery import delivery
from jobs.models import Job
from jobs.states import JobState
from spaces import ailment, delivering, words
from spaces.forge.errors import Unavailable
from spaces.placement import Wish
from spaces.space_page import Person, SpacePage, look_up
from spaces.stage_page import stage_context


@require_safe
@never_cache
def status(request: HttpRequest, owner: str, name: str) -> HttpResponseBase:
    """Answer with the status, or with `{"code", "detail"}`: 404 not_found, 503 unavailable."""
    try:
        answer = JsonResponse(status_of(look_up(request.user, owner, name), request.user))
    except Http404:
        answer = JsonResponse({"code": "not_found", "detail": "There is nothing here."}, status=404)
    except Unavailable as error:
        answer = JsonResponse({"code": "unavailable", "detail": str(error)}, status=503)
        answer["Retry-After"] = str(max(1, round(error.retry_after)))
    patch_vary_headers(answer, ("Cookie", "Accept-Language"))
    return answer


def status_of(page: SpacePage, user: Person) -> dict[str, Any]:
    """Where the Space stands, for this reader: sentences name no Space or process of which he may not know.

    While it waits, the reason is that of `waiting` alone: what put it into the line is history, and may be long over.
    """
    job = page.job
    waiting = _waiting(page, user)
    caused = job if waiting is None else None
    return {
        "space": str(page.space),
        "state": page.state,
        "kind": page.kind,
        "mode": job.mode if job is not None else None,
        "placement": Wish.of(page.space).as_facts(),
        "revision": page.revision,
        "job": str(job.id) if job is not None else None,
        "worker": job.worker.name if job is not None and job.worker is not None else None,
        "gpus": [{"uuid": gpu.uuid, "name": gpu.name, "simulated": gpu.simulated} for gpu in page.gpus],
        "since": job.state_since.isoformat() if job is not None else None,
        "reason_code": caused.reason_code if caused is not None else "",
        "reason": words.reason(caused.reason_code, caused.reason) if caused is not None else "",
        "ailment": _ailment(job),
        "delivering": _delivering(job),
        "url": page.app_url,
        "waiting": waiting,
    }


def _ailment(job: Job | None) -> dict[str, str] | None:
    """What ails an app that runs."""
    ails = ailment.of(job) if job is not None else None
    return {"code": ails.code, "detail": ails.sentence} if ails is not None else None


def _delivering(job: Job | None) -> dict[str, Any] | None:
    """How far the results of a batch job have come that has ended and is still listed as what it was."""
    bringing = delivery(job) if job is not None else None
    return delivering.as_json(bringing) if bringing is not None else None


def _waiting(page: SpacePage, user: Person) -> dict[str, Any] | None:
    """Place and reasons of a queued job. `place_capped`: so many are before it, and nobody counts further."""
    if page.job is None or page.job.state != JobState.QUEUED:
        return None
    context = stage_context(page, user)
    if "code" not in context:  # it was taken this very moment
        return None
    return {
        "code": context["code"],
        "detail": context["explanation"],
        "place": context["place"],
        "place_capped": context["place_capped"],
        "needs": context["needs"],
        "workers": [row.as_json() for row in context["all_rows"]],
    }
