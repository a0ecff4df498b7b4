"""Every name of an image that a Dockerfile may say, however it is written. Pure.

Its author may be hostile and BuildKit's own reading depends on its version, so this reads generously: each way of
joining lines, with quotes and escapes taken away, every value that a variable may have, and no stage trusted to be one.
A name too many costs nothing unless the machine has a private image of that name.
"""

from __future__ import annotations

import itertools
import platform
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress

from gpu_worker.dockerfile_text import QUOTING, readings
from gpu_worker.errors import JobFailed
from gpu_worker.tree_names import shown

_FROM = re.compile(r"^\s*(?:ONBUILD\s+)?FROM\s+(?:--\S+\s+)*(\S+)", re.IGNORECASE)
_ARG = re.compile(r"^\s*(?:ONBUILD\s+)?(?:ARG|ENV)\s+(.*)$", re.IGNORECASE)
# The first takes the older form too, ENV NAME value; the second what follows a value with blanks, which had quotes.
_ASSIGNED = (re.compile(r"\b(\w+)[=\s](\S*)"), re.compile(r"(?<!\S)(\w+)=(\S*)"))
_OTHER_IMAGE = re.compile(r"(?<![?&/.])\bfrom=([^,\s]+)", re.IGNORECASE)  # no flag has such a sign before it
_VARIABLE = re.compile(r"\$(?:(?P<plain>\w+)|\{(?P<name>\w+)(?::?[-+](?P<word>[^{}$]*))?\})")
_SYNTAX = re.compile(r"\bsyntax\"?\s*[=:]\s*\"?([^\s\"]+)", re.IGNORECASE)
LONGEST_NAME = 4096  # many times what an image can be called
MOST_VALUES = 256  # of one name: who needs more has something in mind
MOST_ROUNDS = 32  # one for each variable of a name, and for those within them
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def image_names(dockerfile: str, build_args: Mapping[str, str]) -> set[str]:
    """The names after FROM, ``--from=`` and ``from=`` of a mount. Raises JobFailed (``image_not_lent``) where nobody
    could tell what a variable makes of one."""
    names: set[str] = set()
    for instructions in readings(dockerfile.removeprefix("\ufeff")):
        values = values_of(instructions, build_args)
        for instruction in instructions:
            for name in _FROM.findall(instruction):
                names |= expanded(name, values)
            for name in _OTHER_IMAGE.findall(instruction):  # in the words of a shell it is often something else
                with suppress(JobFailed):
                    names |= expanded(name, values)
    return {name for name in names if name and not name.isdecimal()}


def syntaxes(dockerfile: str) -> set[str]:
    """Who is to read the Dockerfile, by its first lines: those that are comments or empty, or all of it in JSON."""
    text = dockerfile.removeprefix("\ufeff").lstrip()
    if text.startswith("{"):
        return set(_SYNTAX.findall(text))
    head = itertools.takewhile(lambda line: line.strip()[:1] in ("", "#", "/"), text.split("\n"))
    return set(itertools.chain.from_iterable(_SYNTAX.findall(line) for line in head))


def values_of(instructions: list[str], build_args: Mapping[str, str]) -> Mapping[str, set[str]]:
    """What each variable may be: any of its defaults, or what the build is given."""
    machine = _MACHINES.get(platform.machine(), platform.machine())
    values: defaultdict[str, set[str]] = defaultdict(set)
    for side in ("TARGET", "BUILD"):
        values[f"{side}OS"], values[f"{side}ARCH"] = {"linux"}, {machine}
        values[f"{side}PLATFORM"], values[f"{side}VARIANT"] = {f"linux/{machine}"}, {""}
    for instruction in instructions:
        if (assigned := _ARG.match(instruction)) is not None:
            for name, value in itertools.chain.from_iterable(form.findall(assigned[1]) for form in _ASSIGNED):
                values[name].add(value)
    for name, value in build_args.items():
        values[name].add(value.translate(QUOTING))
    return values


def expanded(name: str, values: Mapping[str, set[str]]) -> set[str]:
    """All that a name with variables may become. Raises JobFailed."""
    names = {name}
    for _ in range(MOST_ROUNDS):
        if any(len(one) > LONGEST_NAME for one in names):
            break
        if not any("$" in one for one in names):
            return names
        names = set(itertools.chain.from_iterable(_once(one, values) for one in names))
        if len(names) > MOST_VALUES:
            break
    raise JobFailed(
        "image_not_lent",
        f"This worker cannot tell which image {shown(name)} is. Write its name, or a variable without a pattern.",
    )


def _once(name: str, values: Mapping[str, set[str]]) -> Iterator[str]:
    """The name with its first variable replaced by each of its values; itself where that is none we know of."""
    found = _VARIABLE.search(name)
    if found is None:
        yield name
        return
    known = values.get(found["plain"] or found["name"]) or {""}
    for value in {*known, *([found["word"]] if found["word"] is not None else ())}:
        yield name[: found.start()] + value + name[found.end() :]
