"""Who did what, on what, why and from where. The lowest room writes it, so that every room can."""

from __future__ import annotations

import ipaddress
from typing import Any

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import models
from django.http import HttpRequest

from jobs.models import AuditEvent

Actor = AbstractBaseUser | AnonymousUser | None


def record(
    act: str,
    *,
    obj: models.Model,
    actor: Actor,
    request: HttpRequest | None = None,
    address: str | None = None,
    reason: str = "",
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
) -> AuditEvent:
    """Write one audit row, in the caller's transaction: the act and its record stand or fall together.

    No actor means the system's own command line, where whoever may run commands is the operator.
    """
    return AuditEvent.objects.create(
        act=act,
        object_type=obj._meta.model_name or "",
        object_id=str(obj.pk),
        object_name=str(obj)[:255],
        actor_id=actor.pk if isinstance(actor, AbstractBaseUser) else None,
        actor_name=actor_name(actor),
        address=address or _address(request),
        reason=reason,
        before=before,
        after=after,
    )


def actor_name(actor: Actor) -> str:
    """The name to write beside an act."""
    if actor is None:
        return "command line"
    return actor.get_username() or "anonymous"


def _address(request: HttpRequest | None) -> str | None:
    """The peer's address. Forwarded headers are not believed here; rooms that know their proxies pass `address`."""
    if request is None:
        return None
    try:
        return str(ipaddress.ip_address(request.META.get("REMOTE_ADDR", "")))
    except ValueError:
        return None
