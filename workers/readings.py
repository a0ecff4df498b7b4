"""Which figures of a GPU's report can be true. Pure: a report in, what may be used of it and what was doubted out.

A driver in trouble tells nonsense rather than nothing: more free memory than there is, processes that use more than the
card has, sizes of zero. Such a figure is never worked with and never hidden: it is doubted, by a code and with the
figure as it was told, and what is used instead is "not known", which makes the card one that is given as a whole only.
A size that cannot be true is replaced by the largest that was ever told for the card.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from workers.reports import IMPOSSIBLE, ForeignOnGpu, GpuReport, OursOnGpu

LARGEST_MIB = 1024 * 1024  # a terabyte on one card: above it, it is no memory but a mistake


@dataclass(frozen=True)
class Doubt:
    """One figure that cannot be true. `mib`: what was told; None: nothing, or no number that memory can have."""

    code: str
    mib: int | None = None


@dataclass(frozen=True)
class Readings:
    """The memory figures of one report as far as they can be believed."""

    total_mib: int  # 0: never told
    free_mib: int | None
    ours: list[OursOnGpu]
    foreign: list[ForeignOnGpu]
    doubts: tuple[Doubt, ...] = ()


def believed(report: GpuReport, *, largest: int) -> Readings:
    """Sort a report's figures into those to use and those to doubt. `largest`: the card's size as known so far."""
    doubts: list[Doubt] = []
    total = _size(report, largest, doubts)
    free = _free(report, total, doubts)
    ours, foreign = _uses(report, total, doubts)
    return Readings(total, free, ours, foreign, tuple(doubts))


def _size(report: GpuReport, largest: int, doubts: list[Doubt]) -> int:
    told = report.total_vram_mib
    if not told:
        # A card that is lost, or cut up by MIG, has a reason of its own for telling no size.
        if report.healthy is not False and not report.error and not report.mig:
            doubts.append(Doubt("size_missing", told))
        return largest
    if not 0 < told <= LARGEST_MIB:
        doubts.append(Doubt("size_impossible", _number(told)))
        return largest
    if told < largest:
        doubts.append(Doubt("size_shrank", told))
    return max(told, largest)


def _free(report: GpuReport, total: int, doubts: list[Doubt]) -> int | None:
    told = report.free_vram_mib
    if told is None:
        return None
    if told < 0 or (total and told > total):
        doubts.append(Doubt("free_impossible", _number(told)))
        return None
    return told


def _uses(report: GpuReport, total: int, doubts: list[Doubt]) -> tuple[list[OursOnGpu], list[ForeignOnGpu]]:
    told = [*(use.mib for use in report.ours), *(use.mib for use in report.foreign)]
    known = [mib for mib in told if mib is not None]
    if any(mib < 0 for mib in known):
        doubts.append(Doubt("use_impossible"))
    elif total and sum(known) > total:
        doubts.append(Doubt("use_above_size", sum(known)))
    else:
        return list(report.ours), list(report.foreign)
    return [replace(use, mib=None) for use in report.ours], [replace(use, mib=None) for use in report.foreign]


def _number(told: int) -> int | None:
    return None if told == IMPOSSIBLE else told


def measurable(uses: Iterable[int | None]) -> bool:
    """Whether the driver tells what each process uses: one that is unknown makes all sums unknown."""
    return all(mib is not None for mib in uses)
