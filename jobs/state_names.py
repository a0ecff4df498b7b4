"""The words people read for the states of a job, in their language."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from django.utils.translation import pgettext_lazy

from jobs.states import JobState

if TYPE_CHECKING:
    from django.utils.functional import _StrPromise

STATE_NAMES: Mapping[str, _StrPromise] = {
    JobState.QUEUED: pgettext_lazy("state", "Queued"),
    JobState.LEASED: pgettext_lazy("state", "Leased"),
    JobState.BUILDING: pgettext_lazy("state", "Building"),
    JobState.STARTING: pgettext_lazy("state", "Starting"),
    JobState.RUNNING: pgettext_lazy("state", "Running"),
    JobState.STOPPING: pgettext_lazy("state", "Stopping"),
    JobState.UNAVAILABLE: pgettext_lazy("state", "Unavailable"),
    JobState.COMPLETED: pgettext_lazy("state", "Completed"),
    JobState.FAILED: pgettext_lazy("state", "Failed"),
    JobState.CANCELLED: pgettext_lazy("state", "Stopped"),
}
# For columns of the database; the plain value is what is stored.
STATE_CHOICES = [(str(state), name) for state, name in STATE_NAMES.items()]
