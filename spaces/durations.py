"""Lengths of time, amounts of memory and places in a line, as words. Pure, translated when called."""

from __future__ import annotations

from django.utils.translation import gettext as _

from jobs.vram import sold_gb

MIB_PER_GB = 1024  # as drivers and people count a card's memory: 24,564 MiB is "24.0 GB"
MINUTE, HOUR, DAY = 60, 3600, 86_400  # seconds


def duration(seconds: float) -> str:
    """Return the two largest units of a length in seconds: "4 min 12 s", "3 h 12 min", "19 d"."""
    whole = max(0, int(seconds))
    if whole < MINUTE:
        return _("%(seconds)d s") % {"seconds": whole}
    if whole < HOUR:
        return _("%(minutes)d min %(seconds)02d s") % {"minutes": whole // MINUTE, "seconds": whole % MINUTE}
    if whole < DAY:
        return _("%(hours)d h %(minutes)02d min") % {"hours": whole // HOUR, "minutes": whole % HOUR // MINUTE}
    if whole < 10 * DAY:
        return _("%(days)d d %(hours)d h") % {"days": whole // DAY, "hours": whole % DAY // HOUR}
    return _("%(days)d d") % {"days": whole // DAY}


def rough(seconds: float) -> str:
    """Return only the largest unit of a length in seconds: "8 min", "3 hours", "19 days"."""
    whole = max(0, int(seconds))
    if whole < MINUTE:
        return _("%(seconds)d s") % {"seconds": whole}
    if whole < HOUR:
        return _("%(minutes)d min") % {"minutes": whole // MINUTE}
    if whole < 2 * DAY:
        return _("%(hours)d h") % {"hours": whole // HOUR}
    return _("%(days)d days") % {"days": whole // DAY}


def clock(seconds: float) -> str:
    """Return a length in seconds as a stopwatch shows it: "4:12", "1:02:09". The same in every language."""
    whole = max(0, int(seconds))
    hours, minutes, rest = whole // HOUR, whole % HOUR // MINUTE, whole % MINUTE
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def gigabytes(mib: int) -> str:
    """Return an amount of memory in MiB as "11.4 GB"."""
    return _("%(size).1f GB") % {"size": mib / MIB_PER_GB}


def needed_memory(mib: int) -> str:
    """Return a demand in MiB as its author wrote it: "20 GB" for the topic vram-20gb, else like `gigabytes`."""
    sold = sold_gb(mib)
    return gigabytes(mib) if sold is None else _("%(size)d GB") % {"size": sold}


def ordinal(number: int) -> str:
    """Return "1st", "22nd", "113th"."""
    values = {"number": number}
    if number % 100 not in (11, 12, 13):
        if number % 10 == 1:
            return _("%(number)dst") % values
        if number % 10 == 2:
            return _("%(number)dnd") % values
        if number % 10 == 3:
            return _("%(number)drd") % values
    return _("%(number)dth") % values


def file_size(size: int) -> str:
    """Return a size in bytes as "812 B", "3.4 kB", "1.2 MB", "2.1 GB"."""
    if size < 1000:
        return f"{size} B"
    if size < 1_000_000:
        return f"{size / 1000:.1f} kB"
    if size < 1_000_000_000:
        return f"{size / 1_000_000:.1f} MB"
    return f"{size / 1_000_000_000:.1f} GB"
