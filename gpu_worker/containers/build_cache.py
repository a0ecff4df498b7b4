"""What images of ours leave in the build cache when they go, and its removal.

BuildKit keeps each layer once more, so that removing an image alone frees nothing. Its cache knows no owner. But a
record that was shared with some image, is not any more after the removal of ours, and has the size of one of their
layers, was shared with ours only. Those records are removed too, by their ids, and nothing else of the cache.

The engine looks at each of its records for every question, and spends seconds on each that goes: a machine that builds
much has tens of thousands. So it is asked as seldom as can be, and what frees next to nothing is left to the engine.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpu_worker.containers.connection import Connection, engine_errors
from gpu_worker.errors import EngineError

logger = logging.getLogger(__name__)

PASSES = 10  # a record goes only after those that were built on it, which may stand in a later call
AT_ONCE = 100  # records in one call: 2.5 KiB of address
WORTH_BYTES = 1024 * 1024
PATIENCE_SECONDS = 300  # for a hundred records on a busy machine


@dataclass(frozen=True)
class Record:
    size: int
    parents: tuple[str, ...]


class BuildCache:
    """One look at the cache before images go, and what to do when they are gone."""

    def __init__(self, engine: Connection) -> None:
        self._engine = engine
        self._before = self._shared()

    def prune_what_had(self, sizes: Collection[int]) -> None:
        """Remove what was shared with the images that have gone, whose layers had these *sizes*. Never raises."""
        after = self._shared() if self._before else {}
        alone = {one: record for one, record in self._before.items() if one not in after and record.size in sizes}
        self._prune(worth_removing(alone))

    def _shared(self) -> dict[str, Record]:
        """Each record that some image shares; none where the engine does not tell."""
        try:
            with engine_errors(), self._engine.patient(PATIENCE_SECONDS):
                records = self._engine().api.df().get("BuildCache") or ()
        except EngineError as problem:
            logger.info("cache unknown", extra={"action": "cache_unknown", "problem": str(problem)})
            return {}
        return {record["ID"]: _record(record) for record in records if record.get("Shared")}

    def _prune(self, records: Collection[str]) -> None:
        left = set(records)
        for _ in range(PASSES):
            rows = sorted(left)
            gone: set[str] = set()
            for start in range(0, len(rows), AT_ONCE):
                gone |= self._prune_some(rows[start : start + AT_ONCE])
            left -= gone
            if not gone or not left:
                return

    def _prune_some(self, records: Sequence[str]) -> set[str]:
        """Remove these, children before parents; which are gone."""
        # The engine takes the id for a pattern: anchored, so that it is these records and no others.
        filters: Any = {"id": [f"^({'|'.join(records)})$"]}  # the stubs know another shape only
        try:
            with engine_errors(), self._engine.patient(PATIENCE_SECONDS):
                answer = self._engine().api.prune_builds(filters=filters, all=True)
        except EngineError as problem:
            logger.info(
                "cache stays", extra={"action": "cache_stays", "records": len(records), "problem": str(problem)}
            )
            return set()
        return set(answer.get("CachesDeleted") or ())


def worth_removing(records: Mapping[str, Record]) -> set[str]:
    """Those that are large, and whatever was built on them: it would keep them."""

    def large(one: str) -> bool:
        seen, left = set(), [one]
        while left:
            record = records.get(one := left.pop())
            if record is None or one in seen:
                continue
            if record.size >= WORTH_BYTES:
                return True
            seen.add(one)
            left += record.parents
        return False

    return {one for one in records if large(one)}


def _record(told: Mapping[str, Any]) -> Record:
    """Engines since Docker 23 name several parents, those before it one."""
    return Record(int(told["Size"]), tuple(told.get("Parents") or filter(None, [told.get("Parent")])))
