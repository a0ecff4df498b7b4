"""The admin's acts on what workers have of single leases: a page lists them, and only what was ticked there is done.

Two acts: containers on hold are removed, and GPUs are freed on which an ended app has left memory.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _t
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from workers import held, unreleased
from workers.api.authentication import address_of
from workers.errors import WorkerError
from workers.models import Worker


@dataclass(frozen=True)
class Choice:
    """One lease to tick, and what is known of it."""

    lease: str
    remark: str
    done: bool = False


@dataclass(frozen=True)
class LeaseAct:
    """One act: what it is called, what it does, in sentences, what there is to choose, and what it did."""

    name: str
    title: Any
    explanation: Any
    look: str  # a command by which one is looked at on its machine; "" where there is none
    choices: Callable[[Sequence[Worker]], dict[uuid.UUID, list[Choice]]]
    do: Callable[..., Worker]
    told: Callable[[int], str]


def _held(workers: Sequence[Worker]) -> dict[uuid.UUID, list[Choice]]:
    return {
        worker_id: [Choice(str(one.lease_id), _remark(one), one.removal_asked) for one in found]
        for worker_id, found in held.on(workers).items()
    }


def _remark(one: held.Held) -> str:
    known = [f"{one.mib} MiB" if one.mib else "", _t("is being removed.") if one.removal_asked else ""]
    return " · ".join(filter(None, known))


def _unreleased(workers: Sequence[Worker]) -> dict[uuid.UUID, list[Choice]]:
    found = {worker.pk: unreleased.on(worker) for worker in workers}
    return {
        worker_id: [Choice(one.lease, _said(one), one.freed) for one in left]
        for worker_id, left in found.items()
        if left
    }


def _said(one: unreleased.Unreleased) -> str:
    return " · ".join(filter(None, [one.reason, _t("freed already.") if one.freed else ""]))


REMOVE_HELD = LeaseAct(
    name="remove_held",
    title=_("Remove containers on hold"),
    explanation=_(
        "They belong to leases that this server does not know: of an older database that was restored, or of another "
        "installation. What is in such a container is lost with it. Look at it on its machine first:"
    ),
    look="docker ps --filter label=openface.lease=…",
    choices=_held,
    do=held.remove,
    told=lambda count: ngettext(
        "%(count)d container is removed with its worker's next heartbeat.",
        "%(count)d containers are removed with their workers' next heartbeats.",
        count,
    ),
)
FREE_GPU = LeaseAct(
    name="free_gpu",
    title=_("Free GPUs on which an ended app has left memory"),
    explanation=_(
        "The app has ended, and its GPU has not given the memory back. Freed, the GPU is given to jobs again at once. "
        "What is really still used there goes on counting, as use by others: jobs that need no more than the rest may "
        "start, and jobs that want the whole GPU wait. Only ending what holds the memory, or a restart of the machine, "
        "brings it back. Look at it on its machine first:"
    ),
    look="nvidia-smi",
    choices=_unreleased,
    do=unreleased.free,
    told=lambda count: ngettext(
        "What %(count)d ended app held on GPUs is freed.", "What %(count)d ended apps held on GPUs is freed.", count
    ),
)


def lease_action(act: LeaseAct) -> Callable[..., HttpResponse | None]:
    """An admin action that asks which leases, by name, and then calls the act for each that was ticked."""

    def action(
        model_admin: admin.ModelAdmin[Worker], request: HttpRequest, workers: QuerySet[Worker]
    ) -> HttpResponse | None:
        if "confirmed" not in request.POST:
            return _ask(act, model_admin, request, list(workers))
        done = sum(_done(act, model_admin, request, named) for named in request.POST.getlist("lease"))
        said = messages.SUCCESS if done else messages.WARNING
        model_admin.message_user(request, act.told(done) % {"count": done}, said)
        return None

    action.__name__ = act.name
    return admin.action(description=act.title)(action)


def _done(act: LeaseAct, model_admin: admin.ModelAdmin[Worker], request: HttpRequest, named: str) -> bool:
    """Whether the act was done for one "worker/lease" of the form."""
    worker_id, _slash, lease_id = named.partition("/")
    try:
        act.do(
            uuid.UUID(worker_id),
            uuid.UUID(lease_id),
            actor=request.user,
            address=address_of(request) or None,
            reason=request.POST.get("reason", "")[:255],
        )
    except WorkerError as error:
        model_admin.message_user(request, str(error), messages.WARNING)
        return False
    except ValueError:  # no form of ours sends that
        return False
    return True


def _ask(
    act: LeaseAct, model_admin: admin.ModelAdmin[Worker], request: HttpRequest, workers: list[Worker]
) -> HttpResponse:
    found = act.choices(workers)
    context: dict[str, Any] = {
        **admin.site.each_context(request),
        "title": act.title,
        "act": act,
        "checkbox": ACTION_CHECKBOX_NAME,
        "workers": [(worker, found.get(worker.pk, [])) for worker in workers],
        "any": bool(found),
        "opts": model_admin.model._meta,
    }
    return TemplateResponse(request, "admin/workers/leases.html", context)
