"""Where a Space's own storage is. `/data` is a volume of the machine that ran it, and goes nowhere by itself."""

from __future__ import annotations

import uuid

from django.utils.translation import gettext as _

from jobs.models import JobEvent
from jobs.states import JobState
from jobs.waiting import Waiting
from spaces.models import Space


def home(space: Space) -> tuple[uuid.UUID, str] | None:
    """Return id and name of the worker that ran the Space last; None where none did, or its row is gone. One query."""
    ran = JobEvent.objects.filter(job__space=space, to_state=JobState.RUNNING, ignored=False, worker__isnull=False)
    return ran.order_by("-id").values_list("worker_id", "worker_name").first()


def left_behind(space: Space, waiting: Waiting) -> str:
    """Return the sentence for a placement under which the Space leaves that machine; "" where it may stay there.

    `waiting`: what each worker says to the Space as it would be placed. One query.
    """
    found = home(space)
    if found is None:
        return ""
    worker_id, name = found
    answer = next((reason for reason in waiting.workers if reason.offer.worker_id == worker_id), None)
    if answer is not None and not answer.never:
        return ""
    return _("Files it kept in /data stay on %(worker)s; they come back when it runs there again.") % {"worker": name}
