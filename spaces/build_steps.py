"""The steps of an image build, read from BuildKit's plain progress. Pure.

Only what the log says is shown: a builder that prints no steps has none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from spaces.log_lines import last_version

_BEGIN = re.compile(
    r"#(?P<vertex>[0-9]+) \[(?:(?P<stage>[\w.-]+) )?(?P<number>[0-9]{1,4})/(?P<total>[0-9]{1,4})\] (?P<command>.+)"
)
_DONE = re.compile(r"#(?P<vertex>[0-9]+) DONE (?P<seconds>[0-9]{1,7}\.[0-9]+)s")
_CACHED = re.compile(r"#(?P<vertex>[0-9]+) CACHED")
_ERROR = re.compile(r"#(?P<vertex>[0-9]+) ERROR")
COMMAND_CHARACTERS = 80  # as much of a command as tells it apart

Standing = Literal["going", "done", "cached", "failed"]


@dataclass(frozen=True)
class Step:
    """One numbered step of the Dockerfile."""

    number: int
    total: int
    command: str
    vertex: str = ""  # the builder's own name for it: its lines begin with "#7 "
    stage: str = ""
    standing: Standing = "going"
    seconds: float | None = None


def read_steps(log: str) -> list[Step]:
    """Return the numbered steps in the order in which they began."""
    steps: dict[str, Step] = {}
    for raw in log.split("\n"):
        line = last_version(raw)
        if not line.startswith("#"):
            continue
        if found := _BEGIN.fullmatch(line):
            steps.setdefault(
                found["vertex"],
                Step(
                    number=int(found["number"]),
                    total=int(found["total"]),
                    command=_short(found["command"]),
                    vertex=found["vertex"],
                    stage=found["stage"] or "",
                ),
            )
        elif found := _DONE.match(line):
            _change(steps, found["vertex"], "done", float(found["seconds"]))
        elif found := _CACHED.match(line):
            _change(steps, found["vertex"], "cached", None)
        elif found := _ERROR.match(line):
            _change(steps, found["vertex"], "failed", None)
    return list(steps.values())


def current(steps: list[Step]) -> Step | None:
    """Return the step that failed, else the newest that still goes on, else the last one that began."""
    failed = [step for step in steps if step.standing == "failed"]
    going = [step for step in steps if step.standing == "going"]
    candidates = failed or going or steps
    return candidates[-1] if candidates else None


def _short(command: str) -> str:
    return command if len(command) <= COMMAND_CHARACTERS else command[:COMMAND_CHARACTERS].rstrip() + "…"


def _change(steps: dict[str, Step], vertex: str, standing: Standing, seconds: float | None) -> None:
    if vertex in steps:
        steps[vertex] = replace(steps[vertex], standing=standing, seconds=seconds)
