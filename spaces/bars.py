"""A GPU's memory as a bar: segments in percent of the card, drawn as SVG so that no inline style is needed. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.vram import GpuOffer, Held, foreign_mib, idle_limit_mib, in_order, shareable


@dataclass(frozen=True)
class Segment:
    """One rectangle. `look` is the class of the stylesheet, as named in `segments`."""

    look: str
    start: float  # percent of the bar
    width: float


def segments(gpu: GpuOffer, *, live: bool = True) -> list[Segment]:
    """Return what is taken on a GPU, from left to right.

    Our reservations (a-t, b-t in turn), each filled as far as measured (a-m, b-m) and followed by what is used beyond
    it (over); the use that is not ours (foreign); and the margin that is promised to nobody (keep). `live`: whether
    what was measured is still true; of a worker that is not heard from, only what is reserved is.
    """
    if gpu.total_mib <= 0:
        return []
    drawn = _Bar(gpu.total_mib)
    foreign = foreign_to_show_mib(gpu) if live else 0
    for number, held in enumerate(gpu.reserved):
        _reserved(drawn, held, "ab"[number % 2], foreign=foreign, live=live)
    drawn.add("foreign", foreign)
    if in_order(gpu) and shareable(gpu) and not any(held.exclusive for held in gpu.reserved):
        drawn.add("keep", gpu.margin_mib)
    return drawn.segments


def foreign_to_show_mib(gpu: GpuOffer) -> int:
    """What is used there and not by us, where it is worth a word.

    A driver keeps a little for itself that no process owns up to; that much is shown as free, not as somebody's.
    """
    used = foreign_mib(gpu)
    return used if gpu.foreign_mib or used > idle_limit_mib(gpu) else 0


class _Bar:
    """A bar that is filled from the left and never beyond its end."""

    def __init__(self, total_mib: int) -> None:
        self.segments: list[Segment] = []
        self._total = total_mib
        self._end = 0.0

    def add(self, look: str, mib: int) -> None:
        """Add what comes next."""
        width = self._width(mib, 100.0 - self._end)
        if width > 0:
            self.segments.append(Segment(look, round(self._end, 2), round(width, 2)))
            self._end += width

    def fill(self, look: str, mib: int) -> None:
        """Draw into what was added last, from its left end."""
        last = self.segments[-1]
        width = self._width(mib, last.width)
        if width > 0:
            self.segments.append(Segment(look, last.start, round(width, 2)))

    def _width(self, mib: int, room: float) -> float:
        return max(0.0, min(room, 100.0 * mib / self._total))


def _reserved(bar: _Bar, held: Held, hue: str, *, foreign: int, live: bool) -> None:
    # Who has the whole card has what others leave of it.
    bar.add(f"{hue}-t", held.mib - foreign if held.exclusive else held.mib)
    if live and held.used_mib and bar.segments:
        bar.fill(f"{hue}-m", held.used_mib)
        bar.add("over", held.used_mib - held.mib)
