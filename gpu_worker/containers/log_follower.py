"""A container's log as the engine keeps it, followed from a position that survives a restart of the worker.

A position is ``<engine time>#<pieces of that time already seen>``. An app that writes faster than this worker wants to
read is read at a measured pace, and what it leaves behind is skipped with a line that says so: the engine throws the
oldest away in any case, and silently. Once the app has ended, what is left is read as fast as it can be; where that is
still too much, the last of it is what is read.
"""

from __future__ import annotations

import calendar
import time
from collections.abc import Callable, Iterator

from gpu_worker.commands import Cancel
from gpu_worker.containers.connection import Connection, engine_errors
from gpu_worker.errors import EngineError, EngineSilent
from gpu_worker.executor import Remark

AGAIN_SECONDS = 0.1
PACE_LINES, PACE_SECONDS = 2000, 0.1  # a line costs about 15 µs here: less than half of one core
MOST_LAG_SECONDS = 5.0
REST_SECONDS = 5.0  # for what is left of an app that has ended
LAST_LINES = 2000  # read of what is more
SKIPPED = "\n… the app writes faster than its log is taken; {seconds:.0f} s of it were skipped …\n"


# Which part of the log one reading is for: what comes, what is left of an ended app's, and of much of it the end.
FOLLOWING, REST, LAST = "following", "rest", "last"
THROWN_AWAY = "\n… the engine has thrown away what the app wrote in between …\n"
TOO_MUCH = "\n… the app has ended, and has written more than is taken; the last of it follows …\n"


def follow_log(
    engine: Connection,
    container_id: str,
    position: str | None,
    *,
    over: Cancel,
    stop: Cancel,
    ended: Callable[[], bool],
) -> Iterator[tuple[bytes, str]]:
    """Pieces of output after *position* with the position behind each; until *ended* or *stop*.

    *over*: the app has ended, and somebody waits for its last words. An engine that falls silent is asked again.
    """
    last, seen = _parse_position(position)
    behind: tuple[str, int] | None = None  # where the reading was before it skipped, until something newer is read
    part = FOLLOWING
    while not stop.is_set():
        try:
            count, pace = 0, _Pace(over)
            known = not last or behind is not None or part == LAST  # whether it goes on where the reading was
            for frame in _frames(engine, container_id, last, part):
                stamp, _, payload = frame.partition(b" ")
                moment = stamp.decode("ascii", "replace")
                if moment < last:
                    continue
                count = count + 1 if moment == last else 1
                known = known or moment == last
                if moment == last and count <= seen:
                    continue
                if not known:
                    known = True
                    yield Remark(THROWN_AWAY.encode()), f"{last}#{seen}"
                last, seen, behind = moment, count, None
                yield payload, f"{moment}#{count}"
                if stop.is_set():
                    return
                remark = pace.passed(moment) if part != LAST else None
                if remark is not None:
                    behind, (last, seen) = (last, seen), (_engine_time(time.time()), 0)
                    yield Remark(remark.encode()), f"{last}#{seen}"
                    break
        except EngineSilent:
            pass
        except EngineError:
            return
        else:
            if part == LAST or (part == REST and behind is None):
                return
        if part == REST and behind is not None:
            part, (last, seen) = LAST, behind
        elif part == FOLLOWING and ended():
            part = REST  # an engine lets go of who follows a log as soon as the app ends, wherever he is
        else:
            time.sleep(AGAIN_SECONDS)


class _Pace:
    """Of one reading of the log: not too fast for this machine, and how far the reading falls behind the app."""

    def __init__(self, over: Cancel) -> None:
        self._over = over
        self._over_since: float | None = None
        self._lines, self._since = 0, time.monotonic()
        self._least_lag: float | None = None

    def passed(self, moment: str) -> str | None:
        """One line more, written at *moment*; may sleep. What to say where the reading is to go on with the newest.

        A log that is read after an absence is behind from the start, and catches up: only what is lost since counts.
        """
        self._lines += 1
        if self._lines < PACE_LINES:
            return None
        self._lines = 0
        if self._over.is_set():
            self._over_since = self._over_since or time.monotonic()
            return TOO_MUCH if time.monotonic() - self._over_since > REST_SECONDS else None
        time.sleep(max(0.0, self._since + PACE_SECONDS - time.monotonic()))
        self._since = time.monotonic()
        lag = time.time() - (_epoch_seconds(moment) or time.time())
        self._least_lag = lag if self._least_lag is None else min(lag, self._least_lag)
        return SKIPPED.format(seconds=lag) if lag > self._least_lag + MOST_LAG_SECONDS else None


def _engine_time(moment: float) -> str:
    """As the engine writes it, to compare as texts."""
    return time.strftime("%Y-%m-%dT%H:%M:%S.", time.gmtime(moment)) + f"{int(moment % 1 * 1e9):09d}Z"


def _frames(engine: Connection, container_id: str, last: str, part: str) -> Iterator[bytes]:
    with engine_errors():
        since = _epoch_seconds(last)
        which: dict[str, int] = {"tail": LAST_LINES} if part == LAST else {"since": since} if since else {}
        yield from (
            engine()
            .containers.get(container_id)
            .logs(
                stream=True,
                follow=part == FOLLOWING,
                timestamps=True,
                stdout=True,
                stderr=True,
                **which,
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
