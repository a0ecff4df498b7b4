"""What a repository's topics ask for: which kind of job, on what.

Topics are words that people type. The ones we know are listed here; any other is somebody's label and means nothing.
Where two contradict each other, one rule wins and a sentence says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from jobs.scheduling import RequirementSpec
from spaces.advice import Advice

JobKind = Literal["space", "inference", "benchmark"]
Mode = Literal["service", "batch"]

# A repository with one of these can be run. In this order where it has several.
RUNNABLE: tuple[JobKind, ...] = ("space", "inference", "benchmark")
# Any of these says that it needs a GPU; the last two also say which software must be there.
_GPU_WORDS = ("gpu", "local-gpu", "nvidia", "cuda")
_FEATURES = ("nvidia", "cuda")

_VRAM = re.compile(r"vram-(\d{1,7})(gb|mib)\Z")
_GPUS = re.compile(r"gpus-(\d{1,2})\Z")
VRAM_MAX_MIB = 1024 * 1024  # a terabyte per GPU: above it, it is a typing error
GPUS_MAX = 16  # no machine has more

# A card "of 12 GB" is sold by powers of ten, and has a little more or less than that when the driver counts:
# 12 × 10⁹ bytes are 11,444 MiB, and an RTX 3060 with its 12,287 MiB must fit.
_BYTES_PER_GB = 10**9
_BYTES_PER_MIB = 2**20


@dataclass(frozen=True)
class Plan:
    """What the topics say, as the queue wants it. `warnings` are for the owner."""

    kind: JobKind
    mode: Mode
    requirement: RequirementSpec
    warnings: tuple[Advice, ...] = ()


def is_runnable(topics: Iterable[str]) -> bool:
    """Whether a repository with these topics is a Space."""
    return not {topic.lower() for topic in topics}.isdisjoint(RUNNABLE)


def plan(topics: Iterable[str]) -> Plan:
    """Read the topics, in any order and case. Never raises; topics that mean nothing here are passed over."""
    words = {topic.strip().lower() for topic in topics}
    warnings: list[Advice] = []
    kind = _kind(words, warnings)
    vram = _largest(_sizes(words, warnings), "topics_sizes", warnings)
    count = _largest(_counts(words, warnings), "topics_counts", warnings)
    return Plan(
        kind=kind,
        mode="batch" if kind == "benchmark" else "service",
        requirement=_requirement(words, vram, count, warnings),
        warnings=tuple(warnings),
    )


def _kind(words: set[str], warnings: list[Advice]) -> JobKind:
    kinds = [kind for kind in RUNNABLE if kind in words]
    if len(kinds) > 1:
        warnings.append(Advice("topics_kinds", {"topics": ", ".join(kinds), "kind": kinds[0]}))
    return kinds[0] if kinds else "space"


def _requirement(words: set[str], vram: int | None, count: int | None, warnings: list[Advice]) -> RequirementSpec:
    asking = [word for word in _GPU_WORDS if word in words]
    if vram is not None:
        asking.append("vram-…")
    if count is not None:
        asking.append("gpus-…")
    if "cpu" in words and asking:
        if "gpu" not in words:
            warnings.append(Advice("topics_beside_cpu", {"topics": ", ".join(asking)}))
            return RequirementSpec(kind="cpu")
        # Waiting for a GPU can be seen and mended; running without one where one was wanted cannot.
        warnings.append(Advice("topics_cpu_and_gpu"))
    if not asking:
        return RequirementSpec(kind="cpu")
    return RequirementSpec(
        kind="gpu",
        gpu_count=count or 1,
        vram_mib=vram,
        exclusive=vram is None,  # who does not say how much he needs gets the whole GPU
        features=tuple(sorted(word for word in _FEATURES if word in words)),
    )


def _sizes(words: set[str], warnings: list[Advice]) -> list[int]:
    """Return what the vram topics ask for, in MiB."""
    sizes = []
    for word in sorted(words):
        if match := _VRAM.match(word):
            number = int(match[1])
            mib = number * _BYTES_PER_GB // _BYTES_PER_MIB if match[2] == "gb" else number
            if 0 < mib <= VRAM_MAX_MIB:
                sizes.append(mib)
            else:
                warnings.append(Advice("topic_no_size", {"topic": word}))
    return sizes


def _counts(words: set[str], warnings: list[Advice]) -> list[int]:
    counts = []
    for word in sorted(words):
        if match := _GPUS.match(word):
            if 1 <= int(match[1]) <= GPUS_MAX:
                counts.append(int(match[1]))
            else:
                warnings.append(Advice("topic_no_count", {"topic": word, "most": GPUS_MAX}))
    return counts


def _largest(values: list[int], several: str, warnings: list[Advice]) -> int | None:
    if len(set(values)) > 1:
        warnings.append(Advice(several, {"largest": max(values)}))
    return max(values, default=None)
