"""The owner's pause: a small file in the data directory, so that it outlives the worker and the machine's restart.

`openface-gpu-worker pause` and `resume` write it; the running worker looks at it several times a second, so it needs
no signal and hears of it wherever the command runs (in its container, on the host, as another account).
"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path

from gpu_worker.atomic import write_private
from gpu_worker.errors import ConfigError

FILE_NAME = "pause.json"
RESERVE_NAME = "pause.reserve"
RESERVED_BYTES = 4096
LONGEST_REASON = 200  # characters; the control plane keeps 512 of the whole sentence
LONGEST = timedelta(days=3660)
_UNITS = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}


@dataclass(frozen=True, kw_only=True)
class Pause:
    since: float
    """When it was said; seconds of this machine's clock, like *until*."""
    until: float | None = None
    """When it ends by itself; None: with `resume`."""
    reason: str = ""
    stop_apps: bool = False
    """Whether running apps are stopped and handed back; otherwise they go on."""

    def told(self) -> str:
        """Why no job is taken, as operators read it behind "paused"; times in this machine's zone, with its offset."""
        until = f", until {moment(self.until)}" if self.until is not None else ""
        return (self.reason or "no reason given") + until

    def sentence(self) -> str:
        """For the owner of the machine."""
        until = f" until {moment(self.until)}" if self.until is not None else ""
        return f"Paused{until}" + (f": {self.reason}" if self.reason else ".")


class PauseFile:
    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / FILE_NAME
        self._reserve = data_dir / RESERVE_NAME

    def write(self, pause: Pause) -> None:
        """Raises ConfigError."""
        content = json.dumps(asdict(pause))
        try:
            write_private(self._path, content)
        except OSError as problem:
            if not self._rewrite_reserve(content):
                raise ConfigError(f"{self._path} cannot be written: {problem.strerror}.") from problem

    def reserve(self) -> None:
        """Keep room for a pause: a full disk is when the owner of a machine needs one. Quiet where it cannot be had."""
        if not self._reserve.exists():
            with suppress(OSError):
                write_private(self._reserve, " " * RESERVED_BYTES)

    def _rewrite_reserve(self, content: str) -> bool:
        """Write into the blocks that are kept for it, and let them be the pause's file; whether that went well."""
        try:
            with self._reserve.open("r+b") as file:
                file.write(content.encode().ljust(RESERVED_BYTES))
                file.flush()
                os.fsync(file.fileno())
            self._reserve.rename(self._path)
        except OSError:
            return False
        return True

    def remove(self) -> None:
        """Raises ConfigError."""
        try:
            self._path.unlink(missing_ok=True)
        except OSError as problem:
            raise ConfigError(f"{self._path} cannot be removed: {problem.strerror}.") from problem

    def read(self) -> Pause | None:
        """What was written last, also when its time is over; None: nothing. A file that makes no sense is a pause.

        Who pauses a machine needs it; to go on because a power cut left half a file would be the wrong guess.
        """
        try:
            content = json.loads(self._path.read_text())
            until = None if content["until"] is None else float(content["until"])
            if until is not None:
                moment(until)  # what cannot be shown makes no sense either
            return Pause(
                since=float(content["since"]),
                until=until,
                reason=str(content["reason"]),
                stop_apps=content["stop_apps"] is True,
            )
        except FileNotFoundError:
            return None
        except (OSError, ValueError, OverflowError, RecursionError, TypeError, KeyError) as problem:
            return Pause(since=0.0, reason=f"{self._path} cannot be read ({type(problem).__name__}); resume removes it")

    def stamp(self) -> tuple[int, int, int] | None:
        """Changes whenever the file does; cheap enough to ask for all the time."""
        try:
            facts = os.stat(self._path)
        except OSError:
            return None
        return facts.st_ino, facts.st_mtime_ns, facts.st_size


class PauseWatch:
    """The pause in force, as one process knows it. `look` is for one thread; `current` for all."""

    def __init__(self, file: PauseFile) -> None:
        self._file = file
        file.reserve()
        self._stamp: tuple[int, int, int] | None = None
        self._written: Pause | None = None
        self._current: Pause | None = None

    @property
    def current(self) -> Pause | None:
        return self._current

    def reason(self, *_: object) -> str | None:
        """Why no job is taken; None when nothing is paused."""
        pause = self._current
        return None if pause is None else pause.told()

    def look(self, now: float) -> bool:
        """Read the file when it changed, and let a pause end by the clock; whether the pause in force is another."""
        stamp = self._file.stamp()
        if stamp != self._stamp:
            self._stamp, self._written = stamp, self._file.read()
            if stamp is None:
                self._file.reserve()
        before, self._current = self._current, in_force(self._written, now)
        return self._current != before


def in_force(pause: Pause | None, now: float) -> Pause | None:
    """The pause, or None when its time is over."""
    return None if pause is None or (pause.until is not None and pause.until <= now) else pause


def duration(text: str) -> timedelta:
    """``90m``, ``2h``, ``1d12h``. Raises ConfigError."""
    parts = re.fullmatch(r"(?:\d{1,4}[dhms])+", text.strip().lower(), re.ASCII)
    span = timedelta()
    for amount, unit in re.findall(r"(\d+)([dhms])", text.lower()) if parts else ():
        span += timedelta(**{_UNITS[unit]: int(amount)})
    if span > LONGEST:
        raise ConfigError(f"{text} is more than ten years; without a time the pause lasts until resume.")
    if not span:
        raise ConfigError(f"{text!r} is no duration: write 30m, 2h, or 1d12h.")
    return span


def time_of_day(text: str, *, now: datetime) -> datetime:
    """``18:00`` (the next one) or ``2026-12-24T18:00``; in this machine's zone unless it says its own.

    Raises ConfigError.
    """
    try:
        if re.fullmatch(r"\d{1,2}:\d{2}", text.strip(), re.ASCII):
            hour, minute = map(int, text.split(":"))
            naive = now.replace(tzinfo=None, hour=hour, minute=minute, second=0, microsecond=0)
            if naive.astimezone() <= now:
                naive += timedelta(days=1)
            return naive.astimezone()
        until = datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError):
        raise ConfigError(f"{text!r} is no time: write 18:00 or 2026-12-24T18:00.") from None
    if until > now + LONGEST:
        raise ConfigError(f"{text} is more than ten years away; without a time the pause lasts until resume.")
    if until <= now:
        raise ConfigError(f"{text} is over already.")
    return until


def moment(seconds: float) -> str:
    """A time of this machine's clock for people."""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M UTC%z")
