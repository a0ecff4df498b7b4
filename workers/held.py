"""Containers on hold: what a worker has of leases that nobody here knows, and an operator's word to remove one.

After an older database was restored, or of another installation, a container may be all that is left of somebody's
work, so nothing here ever has it removed by itself: a worker is told `hold`, and removes it after a day. The one
exception is an operator who names worker and lease. That holds for this worker and this lease only, as long as the
worker lists it and nobody here knows it: were the database put back to where it knows the lease, its row decides again.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from jobs import audit, notices
from jobs.audit import Actor
from jobs.lifecycle import Instruction
from jobs.models import Lease
from workers import standing, unreleased
from workers.errors import WrongStanding
from workers.models import Gpu, Worker
from workers.reports import HoldReport


@dataclass(frozen=True)
class Held:
    """One container on hold. `mib`: what it uses of its worker's GPUs; None where that was not measured."""

    lease_id: uuid.UUID
    mib: int | None = None
    removal_asked: bool = False

    def as_json(self) -> dict[str, Any]:
        return {"lease": str(self.lease_id), "gpu_mib": self.mib, "removal_asked": self.removal_asked}


def on(workers: Iterable[Worker]) -> dict[uuid.UUID, list[Held]]:
    """What each of these workers has on hold, by its last report. One query, or none where nothing is."""
    holding = [worker for worker in workers if worker.foreign_leases]
    used: dict[tuple[uuid.UUID, str], int] = defaultdict(int)
    measured = Gpu.objects.filter(worker__in=[worker.pk for worker in holding], present=True) if holding else ()
    for gpu in measured:
        for entry in gpu.ours:
            used[gpu.worker_id, entry["lease"]] += entry.get("mib") or 0
    return {
        worker.pk: [
            Held(uuid.UUID(lease), used.get((worker.pk, lease)) or None, lease in (worker.removals or ()))
            for lease in worker.foreign_leases
        ]
        for worker in holding
    }


def remove(
    worker_id: uuid.UUID, lease_id: uuid.UUID, *, actor: Actor, address: str | None = None, reason: str = ""
) -> Worker:
    """Have the worker remove what it has of this lease; its next heartbeat is told so. Twice is once.

    Raises UnknownWorker, WrongStanding (revoked, or it has no such container on hold).
    """
    with transaction.atomic():
        worker = standing.locked(worker_id)
        lease, asked = str(lease_id), list(worker.removals or ())
        if lease not in worker.foreign_leases:
            raise WrongStanding(f"{worker.name} has no container of the lease {lease} on hold.")
        if Lease.objects.filter(pk=lease_id, released_at=None).exists():
            raise WrongStanding(f"The lease {lease} is valid on another worker.")
        if lease in asked:
            return worker
        worker.removals = [*asked, lease]
        worker.save(update_fields=["removals"])
        audit.record(
            "held_container_removed", obj=worker, actor=actor, address=address, reason=reason, after={"lease": lease}
        )
        notices.publish("standing", worker=worker_id)  # who hears that sends a heartbeat at once
    return worker


def as_asked(worker: Worker, instructions: Sequence[Instruction]) -> list[Instruction]:
    """The instructions for a worker, with `remove` in place of `hold` where an operator asked for that."""
    asked = set(worker.removals or ())
    return [
        dataclasses.replace(each, want="remove", reason="An operator wants it removed.")
        if each.want == "hold" and str(each.lease_id) in asked
        else each
        for each in instructions
    ]


def facts_of(
    holds: Iterable[HoldReport], unknown: Collection[str], freed: Collection[str] = ()
) -> dict[str, dict[str, Any]]:
    """What is kept of a report's leases: kind and GPUs of the `unknown` ones, and any reason why one is still held.

    What we know of our own leases is in their rows, so a worker without troubles costs no write. `freed`: those whose
    GPUs an operator has freed, which is remembered as long as they are listed.
    """
    kept = {}
    for hold in holds:
        lease = str(hold.lease)
        facts: dict[str, Any] = {}
        if lease in unknown and (hold.kind or hold.gpus):
            facts = {"kind": hold.kind or "gpu", "gpus": sorted(hold.gpus or [])}
        if hold.reason:
            facts["reason"] = hold.reason
        if lease in freed:
            facts["freed"] = True
        if facts:
            kept[lease] = facts
    return kept


def gpus_on_hold(worker: Worker) -> set[str]:
    """The UUIDs of the GPUs that its containers on hold were given, as far as the worker says so."""
    return {uuid for lease in taking_places(worker) for uuid in worker.hold_facts.get(lease, {}).get("gpus", ())}


def taking_places(worker: Worker) -> set[str]:
    """The leases of its containers on hold, less those whose GPUs an operator has freed: of them, no app is left."""
    return set(worker.foreign_leases) - unreleased.freed(worker)


def of_gpus(worker: Worker, seen: Collection[str]) -> set[str]:
    """Those of its containers on hold that take the place of a GPU job.

    By what the worker says of them; where it says nothing (an older one), those that are `seen` on a GPU.
    """
    said = {lease: worker.hold_facts.get(lease, {}).get("kind") for lease in taking_places(worker)}
    return {lease for lease, kind in said.items() if (lease in seen if kind is None else kind == "gpu")}


def still_asked(worker: Worker, held: Iterable[str]) -> list[str] | None:
    """Of what an operator wants removed, what the worker has still on hold; None where that is nothing."""
    return [lease for lease in held if lease in (worker.removals or ())] or None
