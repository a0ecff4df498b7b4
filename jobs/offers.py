"""Where the offers of workers come from: the room that knows workers registers its function here at start-up."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from jobs.scheduling import WorkerOffer

Provider = Callable[[list[uuid.UUID] | None], list[WorkerOffer]]

_provider: Provider | None = None


def provide(function: Provider) -> None:
    """Register the function that describes workers: those with these ids, or (None) all that are not revoked."""
    global _provider
    _provider = function


def offers_for(worker_ids: list[uuid.UUID] | None = None) -> list[WorkerOffer]:
    """What workers offer at this moment. A few queries, however many workers."""
    if _provider is None:
        raise RuntimeError("No room has registered a provider of offers.")
    return _provider(worker_ids)


def offer_for(worker_id: uuid.UUID) -> WorkerOffer:
    """What one worker offers."""
    return offers_for([worker_id])[0]
