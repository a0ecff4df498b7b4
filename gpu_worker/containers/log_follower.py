"""A container's log as the engine keeps it, followed from a position that survives a restart of the worker.

A position is ``<engine time>#<pieces of that time already seen>``.
"""

from __future__ import annotations

import calendar
import time
from collections.abc import Callable, Iterator

from gpu_worker.commands import Cancel
from gpu_worker.containers.connection import Connection, engine_errors
from gpu_worker.errors import EngineError, EngineSilent

AGAIN_SECONDS = 0.1


def follow_log(
    engine: Connection, container_id: str, position: str | None, stop: Cancel, *, ended: Callable[[], bool]
) -> Iterator[tuple[bytes, str]]:
    """Pieces of output after *position* with the position behind each; until *ended* or *stop*.

    An engine that falls silent is asked again.
    """
    last, seen = _parse_position(position)
    while not stop.is_set():
        try:
            count = 0
            for frame in _frames(engine, container_id, last):
                stamp, _, payload = frame.partition(b" ")
                moment = stamp.decode("ascii", "replace")
                if moment < last:
                    continue
                count = count + 1 if moment == last else 1
                if moment == last and count <= seen:
                    continue
                last, seen = moment, count
                yield payload, f"{moment}#{count}"
                if stop.is_set():
                    return
        except EngineSilent:
            pass
        except EngineError:
            return
        if ended():
            return
        time.sleep(AGAIN_SECONDS)


def _frames(engine: Connection, container_id: str, last: str) -> Iterator[bytes]:
    with engine_errors():
        since = _epoch_seconds(last)
        yield from (
            engine()
            .containers.get(container_id)
            .logs(
                stream=True,
                follow=True,
                timestamps=True,
                stdout=True,
                stderr=True,
                **({"since": since} if since else {}),
            )
        )


def _parse_position(position: str | None) -> tuple[str, int]:
    moment, _, count = (position or "").partition("#")
    return moment, int(count) if count.isdecimal() else 0


def _epoch_seconds(moment: str) -> int | None:
    """Whole seconds of an engine time like 2026-01-02T03:04:05.678901234Z; the SDK's ``since`` knows no finer."""
    if not moment:
        return None
    try:
        return calendar.timegm(time.strptime(moment[:19], "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return None
