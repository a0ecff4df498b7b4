"""The live state of a Space: sent whole, at once and after each change, so that nobody needs what he missed."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from typing import Any, Protocol

from django.db import Error as DatabaseError

from jobs import notices
from jobs.states import JobState
from spaces import ailment
from spaces.live_visit import COMMENT_SECONDS, RETRY_MS, Gone, Visit, check, event, in_thread
from spaces.models import Space
from spaces.space_page import newest_job, newest_lease
from spaces.stage import stage_key

TICK_SECONDS = 5.0  # while it waits or builds, reasons and logs move without a notice
MOVING = frozenset({JobState.QUEUED, JobState.LEASED, JobState.BUILDING, JobState.STARTING, JobState.STOPPING})
WAKING = frozenset({"job", "access", "reach"})  # notices after which the state may be another one


class Mailbox(Protocol):
    """Where notices arrive."""

    async def get(self, timeout: float | None = None) -> notices.Notice | None: ...


def read_state(space: Space) -> dict[str, Any]:
    """Return the present state of a Space, whole, and in codes: who draws it has a language. Four queries."""
    job = newest_job(space)
    lease = newest_lease(job)
    ails = ailment.of(job) if job is not None else None
    return {
        "key": stage_key(space, job),
        "state": job.state if job is not None else "",
        "job": str(job.id) if job is not None else "",
        "revision": job.revision if job is not None else "",
        "worker": job.worker.name if job is not None and job.worker is not None else "",
        "lease": str(lease.id) if lease is not None else "",
        "computes": job is not None and job.mode == job.Mode.BATCH and job.state == JobState.RUNNING,
        "ailment": ails.code if ails is not None else "",
    }


async def state_events(visit: Visit) -> AsyncGenerator[bytes, None]:
    """Yield the state now, at each change, and at ticks while something moves; comments when all is quiet."""
    yield f"retry: {RETRY_MS}\n\n".encode()
    try:
        async with notices.mailbox(WAKING) as box:  # subscribed before the first read: nothing is missed
            state = await in_thread(read_state, visit.space)
            yield event("state", state)
            spoke = time.monotonic()
            while True:
                notice = await _notice(box, visit.space, TICK_SECONDS)
                await check(visit, now=notice is not None and notice.kind == "access")
                moving = state["state"] in MOVING or state["computes"]
                if notice is None and not moving:
                    if time.monotonic() - spoke >= COMMENT_SECONDS:
                        yield b": still here\n\n"
                        spoke = time.monotonic()
                    continue
                state = await in_thread(read_state, visit.space)
                yield event("state", {**state, "tick": notice is None})
                spoke = time.monotonic()
    except Gone:
        yield event("gone", {})
    except DatabaseError:
        return  # the reader comes back by himself and finds the database again, or a 503


async def _notice(box: Mailbox, space: Space, seconds: float) -> notices.Notice | None:
    """Return the next notice about this Space, or None when none came in time. Others' notices do not wake anybody."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        notice = await box.get(left)
        if notice is None:
            return None
        if notice.kind == notices.RESYNC or notice.ids.get("space") in (None, str(space.pk)):
            return notice
    return None
