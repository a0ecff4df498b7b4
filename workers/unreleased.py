"""GPU memory that an ended app has left behind, and an operator's word to wait for it no longer.

A lease that is over stays on the books as long as its worker lists it, and a worker lists it until the GPUs have given
back what its app used. That may take until the machine is restarted. Meanwhile an operator may free the GPUs of such a
lease, by worker and lease, once: the place and the reservation are off the books. The worker goes on telling of the
memory, and what is really still used there counts as use by others, as it is measured; so nothing is given twice.
"""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass
from typing import Any

from django.db import transaction

from jobs import audit, lifecycle
from jobs.audit import Actor
from workers import standing
from workers.errors import WrongStanding
from workers.models import Worker


@dataclass(frozen=True)
class Unreleased:
    """A lease that is over, and why its worker still lists it. `freed`: an operator has freed its GPUs."""

    lease: str
    reason: str
    freed: bool = False

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def on(worker: Worker) -> list[Unreleased]:
    """What the worker still has for a reason of its own: memory of a GPU that is not released."""
    return [
        Unreleased(lease, facts["reason"], bool(facts.get("freed")))
        for lease, facts in sorted(worker.hold_facts.items())
        if "reason" in facts
    ]


def freed(worker: Worker) -> frozenset[str]:
    """The leases whose GPUs an operator has freed, as long as the worker lists them."""
    return frozenset(lease for lease, facts in worker.hold_facts.items() if facts.get("freed"))


def free(
    worker_id: uuid.UUID, lease_id: uuid.UUID, *, actor: Actor, address: str | None = None, reason: str = ""
) -> Worker:
    """Free the GPUs on which an ended app has left memory. Twice is once.

    Raises UnknownWorker, WrongStanding (revoked, it tells of no such memory, or the lease may still run its job).
    """
    with transaction.atomic():
        worker = standing.locked(worker_id)
        lease, facts = str(lease_id), worker.hold_facts.get(str(lease_id), {})
        if "reason" not in facts:
            raise WrongStanding(f"{worker.name} tells of no GPU memory that the lease {lease} has left behind.")
        if facts.get("freed"):
            return worker
        if not lifecycle.write_off(lease_id, worker_id=worker_id):
            raise WrongStanding(f"The lease {lease} is still valid: stop its job first.")
        worker.hold_facts = {**worker.hold_facts, lease: {**facts, "freed": True}}
        worker.save(update_fields=["hold_facts"])
        audit.record(
            "gpu_memory_written_off",
            obj=worker,
            actor=actor,
            address=address,
            reason=reason,
            after={"lease": lease, "said": facts["reason"]},
        )
    return worker
