"""The admin's act on containers on hold: the page lists them, and only what was ticked there is removed."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from workers import held
from workers.api.authentication import address_of
from workers.errors import WorkerError
from workers.models import Worker

TITLE = _("Remove containers on hold")


@admin.action(description=TITLE)
def remove_held(
    model_admin: admin.ModelAdmin[Worker], request: HttpRequest, workers: QuerySet[Worker]
) -> HttpResponse | None:
    """Ask which, by name, and have those removed."""
    if "confirmed" not in request.POST:
        return _ask(model_admin, request, list(workers))
    reason = request.POST.get("reason", "")[:255]
    done = 0
    for named in request.POST.getlist("held"):
        worker_id, _slash, lease_id = named.partition("/")
        try:
            held.remove(
                uuid.UUID(worker_id),
                uuid.UUID(lease_id),
                actor=request.user,
                address=address_of(request) or None,
                reason=reason,
            )
        except WorkerError as error:
            model_admin.message_user(request, str(error), messages.WARNING)
        except ValueError:  # no form of ours sends that
            continue
        else:
            done += 1
    text = ngettext(
        "%(count)d container is removed with its worker's next heartbeat.",
        "%(count)d containers are removed with their workers' next heartbeats.",
        done,
    )
    model_admin.message_user(request, text % {"count": done}, messages.SUCCESS if done else messages.WARNING)
    return None


def _ask(model_admin: admin.ModelAdmin[Worker], request: HttpRequest, workers: list[Worker]) -> HttpResponse:
    on_hold = held.on(workers)
    context: dict[str, Any] = {
        **admin.site.each_context(request),
        "title": TITLE,
        "checkbox": ACTION_CHECKBOX_NAME,
        "workers": [(worker, on_hold.get(worker.pk, [])) for worker in workers],
        "any": bool(on_hold),
        "opts": model_admin.model._meta,
    }
    return TemplateResponse(request, "admin/workers/held.html", context)
