"""Where a Space may run by an operator's word: automatic, on a CPU, on a GPU, or on one named worker.

The one function that changes it is `place`; admin, portal, command and API call it. The wish is in the Space's row, so
it outlives restarts of everything. It goes before the topics, and is part of the needs of every later job.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from dataclasses import replace as changed
from typing import Any

from django.apps import apps
from django.db import transaction
from django.utils.translation import gettext as _

from jobs import audit, lifecycle, notices
from jobs.audit import Actor
from jobs.models import Job
from jobs.scheduling import RequirementSpec
from spaces import topics
from spaces.models import Space

Placement = Space.Placement

REASON_MAX_LENGTH = 255


class PlacementRefused(Exception):
    """The placement cannot be set; the message is a sentence for the operator."""


@dataclass(frozen=True)
class Wish:
    """What an operator wants. `worker` is a Worker row, with the placement "worker" and with no other."""

    placement: Placement
    worker: Any = None

    @classmethod
    def of(cls, space: Space) -> Wish:
        """What is set now."""
        return cls(Placement(space.placement), space.placement_worker)

    @property
    def worker_name(self) -> str:
        return self.worker.name if self.worker is not None else ""

    def as_facts(self) -> dict[str, str | None]:
        """For the audit and for programs."""
        return {"placement": str(self.placement.value), "worker": self.worker_name or None}


@dataclass(frozen=True)
class Placed:
    """What came of it. `moved`: jobs in the line that have other needs now. `stays`: a job that goes on as it was."""

    space: Space
    before: Wish
    after: Wish
    moved: list[Job] = field(default_factory=list)
    stays: Job | None = None

    @property
    def changed(self) -> bool:
        return self.before != self.after


def wish(placement: str, worker: str | None = None) -> Wish:
    """Read a wish from words: a value of Placement, and a worker's name in any case. Raises PlacementRefused."""
    if placement not in Placement.values:
        choices = {"name": placement, "known": ", ".join(Placement.values)}
        raise PlacementRefused(_("There is no placement “%(name)s”: choose one of %(known)s.") % choices)
    name = (worker or "").strip()
    if placement != Placement.WORKER:
        if name:
            raise PlacementRefused(_("A worker is named only with the placement “worker”."))
        return Wish(Placement(placement))
    if not name:
        raise PlacementRefused(_("Name the worker on which it shall run."))
    row = None if "\x00" in name else _workers().filter(name__iexact=name).first()
    if row is None:
        raise PlacementRefused(_("There is no worker %(name)s.") % {"name": name})
    return Wish(Placement.WORKER, row)


def may_place(user: Any) -> bool:
    """Whether this person is an operator."""
    return bool(getattr(user, "is_active", False) and getattr(user, "is_staff", False))


def nameable_workers() -> list[Any]:
    """Return the workers that can be named, by name. One query."""
    return list(_workers().filter(revoked_at=None).order_by("name"))


def requirement_of(space: Space) -> RequirementSpec:
    """Return what the Space's next job will need: its topics under its placement. No query."""
    return placed(topics.plan(space.topics).requirement, space.placement, space.placement_worker_id)


def placed(wanted: RequirementSpec, placement: str, worker_id: Any = None) -> RequirementSpec:
    """Apply a placement to what the topics ask for. Pure."""
    match Placement(placement):
        case Placement.CPU:
            return RequirementSpec(kind="cpu")
        case Placement.GPU if wanted.kind == "cpu":
            return RequirementSpec(kind="gpu", gpu_count=1, exclusive=True)
        case Placement.WORKER:
            return changed(wanted, worker_id=worker_id)
        case _:
            return wanted


def place(
    space_id: int, to: Wish, *, actor: Actor, address: str | None = None, reason: str = "", request: Any = None
) -> Placed:
    """Set the placement, write it down, and give a job that waits in the line its new needs. Raises PlacementRefused.

    What a worker has already goes on where it is, until it is restarted. The same wish again changes nothing and
    writes nothing. The caller has made sure that `actor` is an operator.
    """
    with transaction.atomic():
        locked = Space.objects.select_for_update(no_key=True, of=("self",)).select_related("placement_worker")
        space = locked.get(pk=space_id)
        before = Wish.of(space)
        stays = _stays(space)
        if before == to:
            return Placed(space, before, to, stays=stays)
        _check(to)
        space.placement, space.placement_worker = to.placement, to.worker
        space.save(update_fields=["placement", "placement_worker"])
        audit.record(
            "space_placement",
            obj=space,
            actor=actor,
            request=request,
            address=address,
            reason=reason[:REASON_MAX_LENGTH],
            before=before.as_facts(),
            after=to.as_facts(),
        )
        moved = lifecycle.reclass_queued(space.pk, requirement_of(space), actor=actor, reason=_told(to, reason))
        if not moved:
            notices.publish("job", space=space.pk)  # open pages show the placement
    return Placed(space, before, to, moved=moved, stays=_stays(space))


def _check(to: Wish) -> None:
    if (to.placement == Placement.WORKER) != (to.worker is not None):
        raise PlacementRefused(_("Name the worker on which it shall run."))
    if to.worker is not None and to.worker.revoked_at is not None:
        raise PlacementRefused(
            _("%(name)s was revoked, so it would wait for ever. A new token with --replace brings that worker back.")
            % {"name": to.worker_name}
        )


def _stays(space: Space) -> Job | None:
    """The newest job that a worker has, or may return with: a placement does not touch it."""
    active = Job.objects.active().filter(space=space).select_related("requirement", "worker")
    return next((job for job in active.order_by("-seq") if not lifecycle.waits_in_line(job)), None)


def _told(to: Wish, reason: str) -> str:
    """The sentence for the job's history, in English as all of history is."""
    where = {
        Placement.AUTOMATIC: "as its topics say",
        Placement.CPU: "on a CPU",
        Placement.GPU: "on a GPU",
        Placement.WORKER: f"on {to.worker_name}",
    }[to.placement]
    because = f": {reason[:REASON_MAX_LENGTH].rstrip('.')}" if reason else ""
    return f"An operator placed it {where}{because}."


def _workers() -> Any:
    return apps.get_model("workers", "Worker").objects.filter(forgotten_at=None)
