"""What every page of one Space needs: the Space through the visitor's permission, its newest job, and its header."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, Concatenate, ParamSpec

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.http import Http404, HttpRequest, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from jobs.clock import database_now
from jobs.models import Job, Lease, Reservation
from jobs.states import ACTIVE, FINAL, SERVING, JobState
from spaces import words
from spaces.access import Permission, get_space, permission
from spaces.cards import kind_of
from spaces.forge.errors import NotFound, Unavailable
from spaces.models import Space
from spaces.origin import runtime_url
from spaces.placement import Wish, may_place
from spaces.shown import all_as_shown
from spaces.stage import stage_key

Person = AbstractBaseUser | AnonymousUser
P = ParamSpec("P")


@dataclass(frozen=True)
class HeldGpu:
    """A GPU that runs the Space. A simulated one is called so wherever it is named."""

    name: str
    uuid: str
    simulated: bool

    def __str__(self) -> str:
        return self.name


@dataclass
class SpacePage:
    """A Space as one visitor sees it now."""

    space: Space
    permission: Permission
    job: Job | None
    signed_in: bool
    operator: bool = False

    @property
    def title(self) -> str:
        return self.space.title or self.space.name

    @property
    def kind(self) -> str:
        return kind_of(self.space, self.job)

    @property
    def badge(self) -> words.Badge:
        return words.badge(self.job, kind=self.kind)

    @property
    def key(self) -> str:
        return stage_key(self.space, self.job)

    @property
    def state(self) -> str:
        return self.job.state if self.job is not None else words.ON_DEMAND

    @property
    def revision(self) -> str:
        """The commit that the page is about: what runs or ran last, else the newest one."""
        return self.job.revision if self.job is not None and self.active else self.space.head_revision

    @property
    def active(self) -> bool:
        return self.job is not None and self.job.state in ACTIVE

    @property
    def running(self) -> bool:
        return self.state == JobState.RUNNING

    @property
    def batch(self) -> bool:
        """Whether the newest job computes and ends, and has no page of its own."""
        return self.job is not None and self.job.mode == Job.Mode.BATCH

    @property
    def has_app(self) -> bool:
        """Whether there is an app to open now."""
        return self.running and not self.batch

    @property
    def transient(self) -> bool:
        """Whether something is going to change soon, so that a page without scripts should look again."""
        return self.active and (self.batch or self.state not in SERVING)

    @property
    def may_write(self) -> bool:
        return self.permission >= Permission.WRITE

    @property
    def may_start(self) -> bool:
        return self.may_write and (not self.active or self.state == JobState.STOPPING)

    @property
    def may_restart(self) -> bool:
        return self.may_write and self.state in SERVING

    @property
    def may_stop(self) -> bool:
        return self.may_write and self.active and self.state != JobState.STOPPING

    @property
    def why_not(self) -> str:
        """Return why this visitor has no buttons; empty for one who has."""
        if self.may_write:
            return ""
        if not self.signed_in:
            return _("Sign in to start or stop it.")
        return _("Only people who may write to %(space)s can start or stop it.") % {"space": self.space}

    @property
    def app_url(self) -> str:
        return runtime_url(self.space)

    @cached_property
    def seconds_in_state(self) -> float:
        """How long the newest job is in its state, by the database's clock. One query."""
        return 0.0 if self.job is None else (database_now() - self.job.state_since).total_seconds()

    @property
    def needs(self) -> str:
        """What the job waits for, in a few words; empty when it does not wait."""
        return words.needs_of(self.job.requirement) if self.job is not None and self.state == JobState.QUEUED else ""

    @cached_property
    def placed(self) -> str:
        """Where an operator placed the Space, in a few words; empty where its topics decide. Perhaps a query."""
        wish = Wish.of(self.space)
        return "" if wish.placement == Space.Placement.AUTOMATIC else words.placement(wish.placement, wish.worker_name)

    @cached_property
    def gpus(self) -> list[HeldGpu]:
        """The GPUs that the job's lease holds. One query."""
        if self.job is None or self.job.state in FINAL:
            return []
        held = Reservation.objects.filter(lease__job=self.job, lease__released_at=None).select_related("gpu")
        return [
            HeldGpu(words.gpu_name(one.gpu.index, one.gpu.model), one.gpu.uuid, one.gpu.simulated)
            for one in held.order_by("gpu__index")
        ]


def newest_job(space: Space) -> Job | None:
    """Return the job that the Space's pages are about, as it is shown. At most two queries."""
    newest = Job.objects.filter(space=space).select_related("worker", "requirement__worker").order_by("-seq")[:1]
    return next(iter(all_as_shown(newest)), None)


def newest_lease(job: Job | None) -> Lease | None:
    """Return the newest attempt of a job."""
    return None if job is None else Lease.objects.filter(job=job).order_by("-attempt").first()


def look_up(user: Person, owner: str, name: str) -> SpacePage:
    """Return the Space as `user` sees it; Http404 for one that is missing or not his to see."""
    if "\x00" in owner + name:  # no database takes it
        raise Http404("There is no such Space.")
    try:
        space = get_space(user, owner, name)
    except NotFound as error:
        raise Http404(str(error)) from None
    return SpacePage(
        space=space,
        permission=permission(user, space),
        job=newest_job(space),
        signed_in=bool(user.is_authenticated),
        operator=may_place(user),
    )


def space_view(
    view: Callable[Concatenate[HttpRequest, SpacePage, P], HttpResponseBase],
) -> Callable[..., HttpResponseBase]:
    """Give a view the SpacePage for the owner and name in its address.

    Another spelling of the name is redirected to the right one. A forge that does not answer is a 503 that says so.
    """

    @wraps(view)
    def wrapped(request: HttpRequest, owner: str, name: str, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        try:
            page = look_up(request.user, owner, name)
            if request.method in ("GET", "HEAD") and (right := _other_address(request, page.space, owner, name)):
                return HttpResponseRedirect(right)
            return view(request, page, *args, **kwargs)
        except Unavailable as error:
            answer = render(request, "503.html", {"reason": str(error)}, status=503)
            answer["Retry-After"] = str(max(1, round(error.retry_after)))
            return answer

    return wrapped


def page_context(page: SpacePage, tab: str, **more: Any) -> dict[str, Any]:
    """Return what the templates of a Space's pages read."""
    return {"section": "spaces", "page": page, "space": page.space, "job": page.job, "tab": tab, **more}


def _other_address(request: HttpRequest, space: Space, owner: str, name: str) -> str:
    """Return the address with the name as it is really spelt; empty where it is spelt so already."""
    asked = request.get_full_path()
    right = asked.replace(reverse("space", args=[owner, name]), reverse("space", args=[space.owner, space.name]), 1)
    return "" if right == asked else right
