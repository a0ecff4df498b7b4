"""Where the offers of workers come from: the room that knows workers registers its function here at start-up."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, Protocol

from jobs.scheduling import WorkerOffer


class Provider(Protocol):
    """Describes the workers with these ids, or (None) all that are not revoked.

    `rows`: their rows, where the caller has them and holds their locks; they are not read again then.
    """

    def __call__(
        self, worker_ids: list[uuid.UUID] | None, *, rows: Sequence[Any] | None = None
    ) -> list[WorkerOffer]: ...


_provider: Provider | None = None


def provide(function: Provider) -> None:
    """Register the function that describes workers."""
    global _provider
    _provider = function


def offers_for(worker_ids: list[uuid.UUID] | None = None) -> list[WorkerOffer]:
    """What workers offer at this moment. A few queries, however many workers."""
    if _provider is None:
        raise RuntimeError("No room has registered a provider of offers.")
    return _provider(worker_ids)


def offer_of(worker: Any) -> WorkerOffer:
    """What one worker offers whose row the caller has locked."""
    if _provider is None:
        raise RuntimeError("No room has registered a provider of offers.")
    return _provider([worker.pk], rows=[worker])[0]
