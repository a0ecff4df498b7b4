"""Which image a Dockerfile's result is built on, as far as its text says it."""

from __future__ import annotations

import re
from collections.abc import Mapping

_FROM = re.compile(r"FROM\s+(?:--\S+\s+)*(?P<image>\S+)(?:\s+AS\s+(?P<stage>\S+))?\s*", re.IGNORECASE)
_ARG = re.compile(r"ARG\s+(?P<name>\w+)=(?P<value>\S*)\s*", re.IGNORECASE)
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


def base_of(dockerfile: str, build_args: Mapping[str, str]) -> str | None:
    """The image below the last stage, through the stages that it is made of; None where that is not plainly said."""
    known: dict[str, str] = {}
    stages: dict[str, str] = {}
    last: str | None = None
    for line in dockerfile.replace("\\\r\n", " ").replace("\\\n", " ").splitlines():
        if last is None and (arg := _ARG.fullmatch(line.strip())):
            known[arg["name"]] = build_args.get(arg["name"], arg["value"].strip("'\""))
        elif found := _FROM.fullmatch(line.strip()):
            image = _VARIABLE.sub(lambda name: known.get(name[1] or name[2], name[0]), found["image"])
            last = stages.get(image.lower(), image)
            if found["stage"]:
                stages[found["stage"].lower()] = last
    return last if last is not None and "$" not in last and last != "scratch" else None
