"""How we know what on the engine is ours, and what it is for."""

from __future__ import annotations

import re

from gpu_worker.journal import JobFacts

WORKER_LABEL = "openface.worker"
LEASE_LABEL = "openface.lease"
ROLE_LABEL = "openface.role"  # an image passes its labels on to containers that people start from it: role tells
FACTS_LABEL = "openface.facts"
# Of an image: what its build was made of, and, of one that a recipe made, what that was made of.
INPUTS_LABEL, ASKED_LABEL = "openface.inputs", "openface.asked"
REPOSITORY_LABEL, REVISION_LABEL = "openface.repository", "openface.revision"
SPACE, IMAGE = "space", "image"
DATA, CACHE = "data", "cache"  # the volumes of a Space


def labels_of(worker_id: str, facts: JobFacts, role: str) -> dict[str, str]:
    return {
        WORKER_LABEL: worker_id,
        LEASE_LABEL: facts.lease,
        "openface.job": facts.job,
        REPOSITORY_LABEL: facts.repository_id,
        REVISION_LABEL: facts.revision,
        "openface.attempt": str(facts.attempt),
        "openface.gpus": ",".join(facts.gpus),
        ROLE_LABEL: role,
    }


def ours(worker_id: str, *more: str) -> dict[str, str | list[str] | bool]:
    """The engine's filter for what this worker made for its jobs."""
    return {"label": [f"{WORKER_LABEL}={worker_id}", f"{ROLE_LABEL}={SPACE}", *more]}


def container_name(facts: JobFacts) -> str:
    """Name of a job's container and of its network. Includes the attempt, so that two never collide."""
    readable = re.sub(r"[^a-z0-9]+", "-", facts.repo.lower()).strip("-")[:30]
    return f"openface-{readable}-{facts.lease[:8]}-{facts.attempt}"
