"""A container's log as the engine keeps it, followed from a position that survives a restart of the worker.

A position is ``<engine time>#<pieces of that time already seen>``. An app that writes faster than this worker wants to
read is read at a measured pace, and what it leaves behind is skipped with a line that says so: the engine throws the
oldest away in any case, and silently.
"""

from __future__ import annotations

import calendar
import time
from collections.abc import Callable, Iterator

from gpu_worker.commands import Cancel
from gpu_worker.containers.connection import Connection, engine_errors
from gpu_worker.errors import EngineError, EngineSilent

AGAIN_SECONDS = 0.1
PACE_LINES, PACE_SECONDS = 2000, 0.1  # a line costs about 15 µs here: less than a third of one core
MOST_LAG_SECONDS = 5.0
SKIPPED = "\n… the app writes faster than its log is taken; {seconds:.0f} s of it were skipped …\n"


def follow_log(
    engine: Connection, container_id: str, position: str | None, stop: Cancel, *, ended: Callable[[], bool]
) -> Iterator[tuple[bytes, str]]:
    """Pieces of output after *position* with the position behind each; until *ended* or *stop*.

    An engine that falls silent is asked again.
    """
    last, seen = _parse_position(position)
    while not stop.is_set():
        try:
            count, pace = 0, _Pace()
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
                behind = pace.passed(moment)
                if behind is not None:
                    last, seen = _engine_time(time.time()), 0
                    yield SKIPPED.format(seconds=behind).encode(), f"{last}#{seen}"
                    break
        except EngineSilent:
            pass
        except EngineError:
            return
        if ended():
            return
        time.sleep(AGAIN_SECONDS)


class _Pace:
    """Of one reading of the log: not too fast for this machine, and how far the reading falls behind the app."""

    def __init__(self) -> None:
        self._lines, self._since = 0, time.monotonic()
        self._least_lag: float | None = None

    def passed(self, moment: str) -> float | None:
        """One line more, written at *moment*; may sleep. Seconds that it is behind by now, None while that is little.

        A log that is read after an absence is behind from the start, and catches up: only what is lost since counts.
        """
        self._lines += 1
        if self._lines < PACE_LINES:
            return None
        time.sleep(max(0.0, self._since + PACE_SECONDS - time.monotonic()))
        self._lines, self._since = 0, time.monotonic()
        lag = time.time() - (_epoch_seconds(moment) or time.time())
        self._least_lag = lag if self._least_lag is None else min(lag, self._least_lag)
        return lag if lag > self._least_lag + MOST_LAG_SECONDS else None


def _engine_time(moment: float) -> str:
    """As the engine writes it, to compare as texts."""
    return time.strftime("%Y-%m-%dT%H:%M:%S.", time.gmtime(moment)) + f"{int(moment % 1 * 1e9):09d}Z"


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
