"""What an image demands of the GPU's driver, read before its container is made.

NVIDIA's images say it in variables: `NVIDIA_REQUIRE_CUDA=cuda>=12.8 brand=tesla,driver>=535,driver<536`. Alternatives
stand between spaces, and in each all that is between commas must hold. The container toolkit judges the same at the
start; this is for the sentence, and for another worker. What cannot be known here counts as fulfilled.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_CONDITION = re.compile(r"(?P<name>[a-z]+)(?P<operator>!=|<=|>=|=|<|>)(?P<value>\S+)", re.ASCII)
_VERSION = re.compile(r"\d{1,9}(?:\.\d{1,9}){0,3}", re.ASCII)
_TRUE = frozenset({"1", "t", "true", "T", "TRUE", "True"})


@dataclass(frozen=True)
class Driver:
    """What a machine's driver is; None: not known."""

    cuda: str | None
    version: str | None


@dataclass(frozen=True)
class Unmet:
    """One demand that the driver does not meet, as the image puts it."""

    demand: str
    cuda: str | None = None
    """The least CUDA that would do, where that is what is missing."""

    def sentence(self, worker: str, driver: Driver) -> str:
        if self.cuda is not None:
            return f"Its image needs CUDA {self.cuda} or newer; the driver of {worker} has {driver.cuda}."
        return f"Its image needs {self.demand}; {worker} has CUDA {driver.cuda} and driver {driver.version}."


def unmet(environment: Mapping[str, str], driver: Driver) -> Unmet | None:
    """The first demand of an image with this *environment* that *driver* does not meet; None where it meets all."""
    if environment.get("NVIDIA_DISABLE_REQUIRE") in _TRUE:
        return None  # its author said so
    for demand in _demands(environment):
        alternatives = [_conditions(alternative) for alternative in demand.split()]
        if alternatives and not any(all(_holds(one, driver) for one in each) for each in alternatives):
            return Unmet(demand, _least_cuda(alternatives, driver))
    return None


def _demands(environment: Mapping[str, str]) -> list[str]:
    said = [value for name, value in sorted(environment.items()) if name.startswith("NVIDIA_REQUIRE_")]
    if not any(name == "NVIDIA_REQUIRE_CUDA" for name in environment) and "CUDA_VERSION" in environment:
        # images of before 2017 say nothing else
        numbers = environment["CUDA_VERSION"].split(".")
        said.append("cuda>=" + ".".join(numbers[:2]))
    return said


def _conditions(alternative: str) -> list[re.Match[str]]:
    found = (_CONDITION.fullmatch(condition) for condition in alternative.split(","))
    return [condition for condition in found if condition is not None]


def _holds(condition: re.Match[str], driver: Driver) -> bool:
    known = {"cuda": driver.cuda, "driver": driver.version}.get(condition["name"])
    have, wanted = _numbers(known or ""), _numbers(condition["value"])
    if have is None or wanted is None:
        return True  # brand, arch, or something that nobody told us
    return {
        "=": have == wanted,
        "!=": have != wanted,
        "<": have < wanted,
        "<=": have <= wanted,
        ">": have > wanted,
        ">=": have >= wanted,
    }[condition["operator"]]


def _least_cuda(alternatives: list[list[re.Match[str]]], driver: Driver) -> str | None:
    """The smallest CUDA of those that are asked for as "at least" in so many words."""
    wanted = [
        one["value"]
        for each in alternatives
        for one in each
        if one["name"] == "cuda" and one["operator"] == ">=" and not _holds(one, driver)
    ]
    return min(wanted, key=lambda value: _numbers(value) or (0,), default=None)


def _numbers(version: str) -> tuple[int, ...] | None:
    """Comparable: 12.8 is 12.8.0.0."""
    if _VERSION.fullmatch(version) is None:
        return None
    numbers = [int(part) for part in version.split(".")]
    return tuple(numbers + [0] * (4 - len(numbers)))
