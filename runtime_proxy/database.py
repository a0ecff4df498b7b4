"""How this room's ASGI apps touch the database: in one short call, in a thread of its own, holding nothing after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from asgiref.sync import ThreadSensitiveContext
from channels.db import database_sync_to_async

P = ParamSpec("P")
R = TypeVar("R")


async def in_database(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run `function` in a thread and give its connection back.

    Without a context of its own every call of the process would queue up in one shared thread.
    """
    async with ThreadSensitiveContext():
        result: R = await database_sync_to_async(function)(*args, **kwargs)
        return result
