"""Who reads a live stream, and may still read it; and what both kinds of streams are made of.

Nothing here holds a connection or a thread longer than one short call.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import ThreadSensitiveContext
from asgiref.typing import HTTPScope
from channels.db import database_sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.auth.models import User
from django.http import HttpRequest, parse_cookie

from spaces.access import Permission, permission
from spaces.models import Space
from spaces.space_page import Person, look_up

COMMENT_SECONDS = 15.0  # so that no proxy between takes a quiet stream for a dead one
PERMISSION_SECONDS = 60.0  # how long a right that was taken away may still be used
RETRY_MS = 2000

P = ParamSpec("P")
T = TypeVar("T")


class Refused(Exception):
    """The stream is not opened; the status says why and nothing else does."""

    def __init__(self, status: int) -> None:
        super().__init__(str(status))
        self.status = status


class Gone(Exception):
    """The visitor lost the right to read the Space, or the Space is no more."""


@dataclass
class Visit:
    """One open stream: who reads which Space."""

    space: Space
    user: Person
    checked_at: float  # monotonic


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function that uses the database in a thread of its own, and give the connection back."""
    async with ThreadSensitiveContext():
        result: T = await database_sync_to_async(function)(*args, **kwargs)
        return result


def visit_of(scope: HTTPScope, owner: str, name: str) -> Visit:
    """Find the visitor by the portal's session and the Space through his permission. Raises Http404."""
    user = _user(scope)
    page = look_up(user, owner, name)
    return Visit(space=page.space, user=user, checked_at=time.monotonic())


def _user(scope: HTTPScope) -> Person:
    headers = b"; ".join(value for key, value in scope["headers"] if key == b"cookie").decode("latin-1")
    request = HttpRequest()
    engine = import_module(settings.SESSION_ENGINE)
    request.session = engine.SessionStore(parse_cookie(headers).get(settings.SESSION_COOKIE_NAME))
    return get_user(request)


def _may_read(visit: Visit) -> bool:
    """Whether the visitor may still read. The account is read again: it may have been closed."""
    user = visit.user
    if user.is_authenticated:
        fresh = User.objects.filter(pk=user.pk, is_active=True).first()
        if fresh is None:
            return False
        user = fresh
    return permission(user, visit.space) >= Permission.READ


async def check(visit: Visit, *, now: bool = False) -> None:
    """Ask for the permission again when the last answer is too old. Raises Gone."""
    if now or time.monotonic() - visit.checked_at >= PERMISSION_SECONDS:
        if not await in_thread(_may_read, visit):
            raise Gone
        visit.checked_at = time.monotonic()


def event(name: str, data: dict[str, Any], *, event_id: str | uuid.UUID = "") -> bytes:
    head = f"id: {event_id}\n" if event_id else ""
    return f"{head}event: {name}\ndata: {json.dumps(data)}\n\n".encode()
