"""A GPU's memory as a bar: segments in percent of the card, drawn as SVG so that no inline style is needed. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.scheduling import GpuOffer


@dataclass(frozen=True)
class Segment:
    """One rectangle. `look` is the class of the stylesheet: a-t and b-t reserved, a-m and b-m measured, foreign."""

    look: str
    start: float  # percent of the bar
    width: float


def segments(gpu: GpuOffer) -> list[Segment]:
    """Return what is taken on a GPU: our reservations, filled as far as measured, then the use that is not ours."""
    if gpu.total_mib <= 0:
        return []
    drawn: list[Segment] = []
    position = 0.0
    for number, held in enumerate(gpu.reserved):
        hue = "ab"[number % 2]
        width = min(100.0 - position, 100.0 * held.mib / gpu.total_mib)
        drawn.append(Segment(f"{hue}-t", round(position, 2), round(width, 2)))
        if held.used_mib:
            measured = min(width, 100.0 * held.used_mib / gpu.total_mib)
            drawn.append(Segment(f"{hue}-m", round(position, 2), round(measured, 2)))
        position += width
    foreign = min(100.0 - position, 100.0 * gpu.foreign_mib / gpu.total_mib)
    if foreign > 0:
        drawn.append(Segment("foreign", round(position, 2), round(foreign, 2)))
    return drawn
