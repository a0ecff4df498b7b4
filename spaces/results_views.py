"""The Results tab: what the batch jobs of a Space left, run by run; and the same for programs."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from django.http import Http404, HttpRequest, HttpResponseBase, JsonResponse
from django.shortcuts import render
from django.utils.cache import patch_vary_headers
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from jobs.models import Job
from spaces import results
from spaces.forge.errors import Unavailable
from spaces.models import Space
from spaces.space_page import SpacePage, look_up, page_context, space_view


@dataclass(frozen=True)
class Run:
    """A batch job in the list of runs."""

    job: Job
    files: int
    current: bool


@require_safe
@never_cache
@space_view
def results_tab(request: HttpRequest, page: SpacePage) -> HttpResponseBase:
    """Show the results of one run: the newest that has any, unless the address names another."""
    jobs = results.batch_jobs(page.space)
    counted = results.counts(jobs)
    wanted = request.GET.get("job", "")
    job = find_job(page.space, wanted) if wanted else _telling(jobs, counted)
    context = page_context(
        page,
        "results",
        runs=[Run(one, counted.get(one.pk, 0), current=job is not None and one.pk == job.pk) for one in jobs],
        results=results.of(page.space, job) if job is not None else None,
    )
    return render(request, "spaces/results.html", context)


@require_safe
@never_cache
def results_api(request: HttpRequest, owner: str, name: str) -> HttpResponseBase:
    """Answer with `{"space", "results": {…} or null}`, of `?job=` or the newest run that has any; all files.

    Errors are `{"code", "detail"}`: 404 not_found, 503 unavailable.
    """
    try:
        page = look_up(request.user, owner, name)
        wanted = request.GET.get("job", "")
        if wanted:
            job: Job | None = find_job(page.space, wanted)
        else:
            jobs = results.batch_jobs(page.space)
            job = _telling(jobs, results.counts(jobs))
        found = None if job is None else results.of(page.space, job, limit=None).as_json()
        answer = JsonResponse({"space": str(page.space), "results": found})
    except Http404:
        answer = JsonResponse({"code": "not_found", "detail": "There is nothing here."}, status=404)
    except Unavailable as error:
        answer = JsonResponse({"code": "unavailable", "detail": str(error)}, status=503)
        answer["Retry-After"] = str(max(1, round(error.retry_after)))
    patch_vary_headers(answer, ("Cookie",))
    return answer


def find_job(space: Space, job_id: str) -> Job:
    """Return a batch job of this Space; Http404 for anything else, whoever's it may be."""
    try:
        return Job.objects.get(pk=uuid.UUID(job_id), space=space, mode=Job.Mode.BATCH)
    except (ValueError, Job.DoesNotExist):
        raise Http404("There is no such run.") from None


def _telling(jobs: list[Job], counted: dict[uuid.UUID, int]) -> Job | None:
    """Return the run that a visitor most likely wants to see."""
    return next((job for job in jobs if job.pk in counted), jobs[0] if jobs else None)
