"""The words people read for states, badges and reasons: one place, for every face of the product.

Codes are stable and stored; sentences are neither. A code that is not here falls back to the sentence that was stored
with it, so a newer worker can speak to an older portal. The two large families of sentences stand in modules of their
own (`reason_words`, `waiting_words`) and are read from here all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext_lazy

from jobs import state_names
from jobs.states import JobState
from spaces.durations import needed_memory
from spaces.reason_words import REASONS as REASONS
from spaces.reason_words import REMEDIES as REMEDIES
from spaces.reason_words import reason as reason
from spaces.reason_words import remedy as remedy
from spaces.waiting_words import GPU_REFUSALS as GPU_REFUSALS
from spaces.waiting_words import SHORT as SHORT
from spaces.waiting_words import STANDINGS as STANDINGS
from spaces.waiting_words import WORKER_REFUSALS as WORKER_REFUSALS
from spaces.waiting_words import gpu_refusal as gpu_refusal
from spaces.waiting_words import holders as holders
from spaces.waiting_words import process as process
from spaces.waiting_words import standing as standing
from spaces.waiting_words import waiting as waiting
from spaces.waiting_words import waiting_short as waiting_short
from spaces.waiting_words import worker_refusal as worker_refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django.utils.functional import _StrPromise

    from jobs.models import Job, Requirement

    class Needs(Protocol):
        """A class of needs: a row of Requirement, or the scheduler's RequirementSpec."""

        @property
        def kind(self) -> str: ...
        @property
        def gpu_count(self) -> int: ...
        @property
        def vram_mib(self) -> int | None: ...


ON_DEMAND = "ondemand"  # a Space without any job: it runs when somebody starts it
STOPPED = "stopped"  # how people call a job that was stopped, whether it ever ran (completed) or not (cancelled)

STATE_NAMES: Mapping[str, _StrPromise] = {
    **state_names.STATE_NAMES,
    ON_DEMAND: pgettext_lazy("state", "On demand"),
    STOPPED: pgettext_lazy("state", "Stopped"),
}


@dataclass(frozen=True)
class Badge:
    """What a badge shows: a glyph and class named after the state, the kind of machine, and the word."""

    state: str  # a wire string, or ON_DEMAND: names the glyph and the class
    kind: str  # "GPU" or "CPU"
    name: str

    @property
    def text(self) -> str:
        return f"{self.kind} · {self.name}"


def completes(job: Job) -> bool:
    """Whether people call this job's end completed: a batch job's, unless it was stopped before it had computed all."""
    return job.mode == job.Mode.BATCH and (job.stop_requested_at is None or job.exit_code == 0)


def state_name(state: str, *, completes: bool = False) -> str:
    """Return the word for a state. What is completed was stopped, but for a job of which `completes` is true."""
    key = STOPPED if state == JobState.COMPLETED and not completes else state
    return str(STATE_NAMES.get(key, state))


def badge(job: Job | None, *, kind: str) -> Badge:
    """Return the badge of a Space whose newest job is `job`; `kind` is "gpu" or "cpu"."""
    if job is None:
        return Badge(state=ON_DEMAND, kind=kind.upper(), name=state_name(ON_DEMAND))
    return Badge(state=job.state, kind=kind.upper(), name=state_name(job.state, completes=completes(job)))


def needs(requirement: Needs, *, worker: str = "") -> str:
    """Return what a class of jobs asks for, in a few words; with the worker that an operator named, where one is."""
    wanted = _needed(requirement)
    return _("%(needs)s, on %(worker)s only") % {"needs": wanted, "worker": worker} if worker else wanted


def needs_of(requirement: Requirement) -> str:
    """Return the same for a row, with the worker that it names. A query, unless the worker was read with it."""
    return needs(requirement, worker=requirement.worker.name if requirement.worker is not None else "")


PLACEMENTS: Mapping[str, _StrPromise] = {
    "automatic": pgettext_lazy("placement", "Automatic"),
    "cpu": pgettext_lazy("placement", "On a CPU"),
    "gpu": pgettext_lazy("placement", "On a GPU"),
    "worker": pgettext_lazy("placement", "On one worker"),
}

PLACEMENTS_EXPLAINED: Mapping[str, _StrPromise] = {
    "automatic": gettext_lazy("The topics of the repository decide."),
    "cpu": gettext_lazy("No GPU, whatever the topics say. An app that insists on CUDA fails there."),
    "gpu": gettext_lazy("As the topics say where they ask for a GPU, else one whole GPU."),
    "worker": gettext_lazy("On that worker and no other. It waits while that worker is away."),
}


def placement(value: str, worker: str = "") -> str:
    """Return where an operator placed a Space, in a few words."""
    if worker:
        return _("On %(worker)s only") % {"worker": worker}
    return str(PLACEMENTS.get(value, value))


def _needed(requirement: Needs) -> str:
    count = requirement.gpu_count
    if requirement.kind == "cpu":
        return _("a CPU worker")
    if requirement.vram_mib:
        memory = needed_memory(requirement.vram_mib)
        if count > 1:
            return _("%(count)d GPUs with at least %(memory)s") % {"count": count, "memory": memory}
        return _("a GPU with at least %(memory)s") % {"memory": memory}
    return _("%(count)d whole GPUs") % {"count": count} if count > 1 else _("a whole GPU")


def gpu_name(index: int, model: str) -> str:
    """Return a GPU as people name it: its number on its worker and the short form of its model."""
    short = model.removeprefix("NVIDIA ").removeprefix("GeForce ")
    return f"GPU {index} {short}".strip()


def simulated(name: str) -> str:
    """Return the name of a GPU that is not there, so that nobody takes it for a real one."""
    return _("%(name)s (simulated)") % {"name": name}


def within_sentence(name: str) -> str:
    """Return a state's name as it stands inside a sentence: small in English, unchanged where case has no meaning."""
    return name[:1].lower() + name[1:]
