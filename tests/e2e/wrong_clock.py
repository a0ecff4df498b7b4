"""Run the worker on a machine whose clock is wrong: `python -m tests.e2e.wrong_clock SECONDS run`."""

from __future__ import annotations

import datetime
import runpy
import sys
import time

off = float(sys.argv.pop(1))
right_time, right_time_ns = time.time, time.time_ns
time.time = lambda: right_time() + off
time.time_ns = lambda: right_time_ns() + int(off * 1e9)


class WrongDatetime(datetime.datetime):
    """Now is when the machine believes it is."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> WrongDatetime:
        return cls.fromtimestamp(time.time(), tz)

    @classmethod
    def utcnow(cls) -> WrongDatetime:
        return cls.fromtimestamp(time.time(), datetime.UTC).replace(tzinfo=None)


datetime.datetime = WrongDatetime  # type: ignore[misc]  # on purpose, before anything of the worker is imported
runpy.run_module("gpu_worker", run_name="__main__", alter_sys=True)
