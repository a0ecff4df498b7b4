"""The least CUDA that a job needs, as one of the features of its class: `cuda-12.8`. Pure.

No topic says it. A worker that has built an image learns what the image demands of the driver, and hands the job back
where its own is older; from then on the job waits for a worker that has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_VERSION = re.compile(r"\d{1,2}(?:\.\d{1,2})?", re.ASCII)  # each makes a class that stays: no others than there can be
_FEATURE = re.compile(rf"cuda-({_VERSION.pattern})", re.ASCII)


def least(features: Iterable[str]) -> str | None:
    """The version that these features ask for at least; None where they ask for none."""
    asked = [found[1] for feature in features if (found := _FEATURE.fullmatch(feature))]
    return max(asked, key=_numbers, default=None)


def without(features: Iterable[str]) -> set[str]:
    """The features that name no version of CUDA."""
    return {feature for feature in features if _FEATURE.fullmatch(feature) is None}


def needing(features: Iterable[str], version: str) -> tuple[str, ...]:
    """These features and this CUDA at least; unchanged where that is no version."""
    known = tuple(features)
    if _VERSION.fullmatch(version) is None:
        return known
    highest = max(filter(None, [version, least(known)]), key=_numbers)
    return tuple(sorted({*without(known), f"cuda-{highest}"}))


def is_older(have: str, wanted: str) -> bool:
    """Whether a worker's CUDA is known, and older than *wanted*."""
    return _VERSION.fullmatch(have) is not None and _numbers(have) < _numbers(wanted)


def _numbers(version: str) -> tuple[int, int]:
    major, _, minor = version.partition(".")
    return int(major), int(minor or 0)
