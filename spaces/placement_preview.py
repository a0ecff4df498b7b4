"""What a placement would do, before it is set: what the Space would need, who could take it, what becomes of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from jobs import lifecycle
from jobs.clock import database_now
from jobs.models import Job
from jobs.requirements import spec_of
from jobs.scheduling import RequirementSpec
from jobs.states import JobState
from jobs.waiting import Waiting, look, summed_up
from spaces import kept_data, topics, why, words
from spaces.models import Space
from spaces.placement import Placement, Wish, placed
from spaces.why import Reader, Row

NAMES_SHOWN = 5
OPERATOR = Reader(spaces=(), operator=True)  # only operators place


@dataclass(frozen=True)
class Preview:
    """One wish for one Space, judged now."""

    wish: Wish
    spec: RequirementSpec
    waiting: Waiting
    rows: list[Row]
    effects: list[str]  # sentences on the job there is, and on what the Space has kept

    @property
    def title(self) -> str:
        return words.placement(self.wish.placement, self.wish.worker_name)

    @property
    def explanation(self) -> str:
        return str(words.PLACEMENTS_EXPLAINED[self.wish.placement])

    @property
    def needs(self) -> str:
        return words.needs(self.spec, worker=self.wish.worker_name)

    @property
    def ready(self) -> list[str]:
        """The workers that could take it now."""
        return [reason.name for reason in self.waiting.workers if reason.refusal is None]

    @property
    def outlook(self) -> str:
        """The judgement in one sentence."""
        if self.ready:
            names = ", ".join(self.ready[:NAMES_SHOWN])
            more = len(self.ready) - NAMES_SHOWN
            return _("Could start now on %(names)s.") % {"names": f"{names} + {more}" if more > 0 else names}
        if not self.waiting.workers:
            return str(words.waiting("no_worker"))
        if all(reason.never for reason in self.waiting.workers):
            return _("It would wait for ever: no worker can take it as things are.")
        return _("It would wait: no worker can take it now.")

    @property
    def why(self) -> list[Row]:
        return [row for row in self.rows if not row.never]

    @property
    def never(self) -> list[Row]:
        return why.without_unnamed([row for row in self.rows if row.never])

    def as_json(self) -> dict[str, Any]:
        """For programs; operators only, since it names everybody."""
        return {
            **self.wish.as_facts(),
            "requirement": requirement_as_json(self.spec, worker=self.wish.worker_name),
            "needs": self.needs,
            "outlook": {"code": self.waiting.code, "detail": self.outlook, "ready": self.ready},
            "effects": self.effects,
            "workers": [row.as_json() for row in self.rows],
        }


def requirement_as_json(spec: RequirementSpec, *, worker: str = "") -> dict[str, Any]:
    """A class of needs for programs."""
    return {
        "kind": spec.kind,
        "gpu_count": spec.gpu_count,
        "vram_mib": spec.vram_mib,
        "exclusive": spec.exclusive,
        "features": list(spec.features),
        "worker": worker or None,
    }


def preview(space: Space, wish: Wish) -> Preview:
    """Judge a wish by one look at the fleet. A handful of queries, however many workers."""
    plan = topics.plan(space.topics)
    worker_id = wish.worker.pk if wish.worker is not None else None
    spec = placed(plan.requirement, wish.placement, worker_id)
    waiting = summed_up(look(named=[worker_id]).reasons(spec, mode=plan.mode), spec)
    rows = why.rows(waiting, reader=OPERATOR, now=database_now(), gpu_count=spec.gpu_count)
    effects = [*_effects(space, wish, spec), *filter(None, [kept_data.left_behind(space, waiting)])]
    return Preview(wish, spec, waiting, rows, effects)


def _effects(space: Space, wish: Wish, spec: RequirementSpec) -> list[str]:
    """What becomes of the jobs there are. One query."""
    active = Job.objects.active().filter(space=space).select_related("requirement").order_by("seq")
    told = [_effect(job, spec) for job in active]
    if Wish.of(space) == wish:
        told.insert(0, _("This is how it is placed now."))
    return told or [_("It counts from the next start on.")]


def _effect(job: Job, spec: RequirementSpec) -> str:
    same = spec_of(job.requirement) == spec
    if lifecycle.waits_in_line(job):
        if same:
            return _("The run in line needs just that already.")
        return _("The run in line gets the new needs at once and keeps its place.")
    if job.stop_requested_at is not None:
        return _("The run that is stopping stops.")
    if same:
        return _("The run there is was started with just that.")
    if job.state == JobState.QUEUED:
        return _("The run whose last attempt expired stays as it is: its worker may come back with it.")
    return _("What runs now goes on where it is, until somebody restarts it.")


def choices(space: Space) -> list[tuple[str, str, str]]:
    """Return the placements there are as value, name and explanation. For "automatic" with what the topics ask for."""
    wanted = words.needs(topics.plan(space.topics).requirement)
    explained = {value: str(text) for value, text in words.PLACEMENTS_EXPLAINED.items()}
    explained["automatic"] += " " + _("They ask for %(needs)s.") % {"needs": wanted}
    return [(value, str(words.PLACEMENTS[value]), explained[value]) for value in Placement.values]
