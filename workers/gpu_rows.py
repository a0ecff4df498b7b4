"""One GPU of the fleet page, for the eyes of one reader: its bar, what the bar means, its readings, and what to know.

Names of Spaces are said only to who may see them; processes and what a driver said are the operator's alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.utils.html import format_html
from django.utils.timezone import localtime
from django.utils.translation import gettext as _

from jobs.vram import GpuOffer, Held, available_mib, exceeds, foreign_mib, idle, in_order, shareable
from spaces import words
from spaces.bars import Segment, foreign_to_show_mib, segments
from spaces.durations import gigabytes
from spaces.why import Reader
from workers.models import Gpu
from workers.overview import GpuLine
from workers.workers_words import in_own_words

HOT_CELSIUS = 83  # consumer cards slow down around here
PROCESSES_NAMED = 3


@dataclass(frozen=True)
class Key:
    """One entry under a bar. `swatch`: a or b (ours), foreign, free, or "" for a mere remark."""

    swatch: str
    name: str
    text: str
    over: bool = False  # it uses more than it reserved


@dataclass(frozen=True)
class GpuRow:
    """One GPU: its bar with what the bar means, its readings, and what is out of the ordinary with it."""

    number: str
    model: str
    simulated: bool
    segments: list[Segment]
    keys: list[Key]
    flags: list[str]  # sentences
    temperature: str
    hot: bool
    utilization: str
    caption: str  # power and compute capability, where they are known

    @property
    def label(self) -> str:
        """The bar in words."""
        return f"{self.model}: " + ", ".join(f"{key.name} {key.text}".strip() for key in self.keys)


def gpu_row(gpu: GpuLine, *, online: bool, reader: Reader) -> GpuRow:
    """Draw one GPU. `online`: whether its worker is heard from, so that what it measured is true."""
    row, offer = gpu.row, gpu.offer
    live = online and row.present
    return GpuRow(
        number=_("GPU %(index)d") % {"index": row.index},
        model=f"{words.gpu_name(0, row.model).removeprefix('GPU 0').strip()} {_card_size(offer)}".strip(),
        simulated=row.simulated,
        segments=segments(offer, live=live),
        keys=_keys(offer, live=live, online=online, reader=reader),
        flags=flags(offer, reader=reader, last_listed=row.reported_at),
        temperature=f"{row.temperature_c:.0f} °C" if live and row.temperature_c is not None else "–",
        hot=live and row.temperature_c is not None and row.temperature_c >= HOT_CELSIUS,
        utilization=f"{row.utilization_pct:.0f} %" if live and row.utilization_pct is not None else "–",
        caption=_caption(row, live=live),
    )


def _caption(row: Gpu, *, live: bool) -> str:
    power = f"{row.power_w:.0f} W" if live and row.power_w is not None else ""
    compute = _("compute %(version)s") % {"version": row.compute_capability} if row.compute_capability else ""
    return " · ".join(filter(None, (power, compute)))


def _card_size(offer: GpuOffer) -> str:
    """A card's size as it is sold: 24,564 MiB is "24 GB"."""
    return _("%(size)d GB") % {"size": round(offer.total_mib / 1024)} if offer.total_mib else ""


# --- under the bar -------------------------------------------------------------------------------------------------


def _keys(offer: GpuOffer, *, live: bool, online: bool, reader: Reader) -> list[Key]:
    keys = [
        Key(
            "ab"[number % 2],
            _holder(held, reader),
            _held(held, offer, online=online),
            over=live and exceeds(held.mib, held.used_mib or 0),
        )
        for number, held in enumerate(offer.reserved)
    ]
    if live and foreign_to_show_mib(offer):
        keys.append(Key("foreign", _("not ours"), _foreign(offer, reader)))
    if live and (free := _free(offer)):
        keys.append(Key("free", "", free))
    return keys


def _holder(held: Held, reader: Reader) -> str:
    if reader.operator or held.name in reader.spaces:
        return held.name
    return words.holders([], hidden=1)


def _held(held: Held, offer: GpuOffer, *, online: bool) -> str:
    size = _("whole GPU") if held.exclusive else gigabytes(held.mib)
    if not online:
        return _("%(size)s, stays reserved until the worker is back") % {"size": size}
    if not offer.present:
        return _("%(size)s, stays reserved until its worker says that nothing is left") % {"size": size}
    if held.used_mib is None:
        return size
    used = {"size": size, "used": gigabytes(held.used_mib)}
    if not held.exclusive and exceeds(held.mib, held.used_mib):
        return _("%(size)s, uses %(used)s: more than it reserved") % used
    return _("%(size)s, uses %(used)s") % used


def _foreign(offer: GpuOffer, reader: Reader) -> str:
    size = gigabytes(foreign_mib(offer))
    if not offer.foreign:
        return _("%(size)s, by no process that is listed") % {"size": size}
    if not reader.operator:
        return size
    return f"{size}: " + ", ".join(words.process(pid, name) for pid, name, _mib in offer.foreign[:PROCESSES_NAMED])


def _free(offer: GpuOffer) -> str:
    """What a job could still be given; "" where there is nothing to give."""
    if not in_order(offer) or offer.on_hold or any(held.exclusive for held in offer.reserved):
        return ""
    if shareable(offer):
        return _("%(free)s free") % {"free": gigabytes(available_mib(offer))}
    return _("free as a whole") if idle(offer) else ""


# --- out of the ordinary -------------------------------------------------------------------------------------------


def flags(offer: GpuOffer, *, reader: Reader, last_listed: datetime | None = None) -> list[str]:
    """What is out of the ordinary with a GPU, in sentences, the gravest first."""
    flags = [_disorder(offer, reader)]
    if offer.on_hold:
        flags.append(words.gpu_refusal("gpu_on_hold") or "")
    if not offer.present and last_listed is not None:
        flags.append(gone_since(last_listed))
    if offer.also_at and not offer.elsewhere:
        flags.append(_("%(names)s reported the same GPU too.") % {"names": ", ".join(offer.also_at)})
    flags += [_doubt(code, mib, offer) for code, mib in offer.doubts]
    if not (offer.mig or shareable(offer)) and in_order(offer):
        flags.append(_why_whole(offer))
    if offer.simulated:
        flags.append(_("Simulated: never counted with real ones."))
    return [flag for flag in flags if flag]


def gone_since(last_listed: datetime) -> str:
    """Since when a GPU is not listed any more."""
    return _("Gone since %(time)s.") % {"time": f"{localtime(last_listed):%Y-%m-%d %H:%M %Z}"}


def _disorder(offer: GpuOffer, reader: Reader) -> str:
    """Why nothing new is placed there; "" where it is in order."""
    if offer.mig:
        return words.gpu_refusal("gpu_mig") or ""
    if not offer.present:
        return words.gpu_refusal("gpu_gone") or ""
    if offer.elsewhere:
        return words.gpu_refusal("gpu_elsewhere", other=offer.elsewhere) or ""
    if not offer.healthy:
        said = words.gpu_refusal("gpu_unhealthy") or ""
        return format_html("{} ({})", said, in_own_words(offer.error)) if reader.operator and offer.error else said
    if offer.good_reports_missing:
        return words.gpu_refusal("gpu_recovering", missing=offer.good_reports_missing) or ""
    return ""


def _doubt(code: str, mib: int | None, offer: GpuOffer) -> str:
    """A reading that cannot be true, and what is used instead. `mib`: what was told, where that is an amount at all."""
    facts = {"told": gigabytes(mib or 0), "total": gigabytes(offer.total_mib)}
    if code.startswith("size"):
        if not offer.total_mib:
            return _("Its driver does not tell how much memory it has: only jobs that name no size are placed on it.")
        if not mib:
            return _("Its driver does not tell its size now: the largest that it ever told counts, %(total)s.") % facts
        return _("Its driver tells a size of %(told)s: the largest that it ever told counts, %(total)s.") % facts
    if code == "free_impossible":
        if mib is None:
            return _("Impossible reading, not used: how much of it is free.")
        return _("Impossible reading, not used: %(told)s free of %(total)s.") % facts
    if mib is None:
        return _("Impossible reading, not used: what one of its processes uses.")
    return _("Impossible reading, not used: its processes use %(told)s of %(total)s.") % facts


def _why_whole(offer: GpuOffer) -> str:
    if not offer.measurable:
        return _("What each job uses cannot be measured there: it is given as a whole only.")
    return _("How much of it is free is not known: it is given as a whole only.") if offer.total_mib else ""
