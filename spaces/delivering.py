"""How far the results of an ended batch job have come, in words: on cards, on the fleet page, and for programs."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _

from jobs.delivery import Delivery
from spaces.durations import file_size


def arrived(bringing: Delivery) -> str:
    """Return how much of how much is here: "12 of 240 files, 1.4 GB of 3.2 GB"; "" where its worker did not say."""
    if not bringing.files:
        return ""
    return _("%(here)d of %(all)d files, %(size_here)s of %(size)s") % {
        "here": bringing.files_here,
        "all": bringing.files,
        "size_here": file_size(bringing.size_here),
        "size": file_size(bringing.size),
    }


def on_a_card(bringing: Delivery) -> str:
    """Return it in a few words."""
    return " · ".join(filter(None, [_("Delivering results"), arrived(bringing)]))


def of(space: str, bringing: Delivery) -> str:
    """Return it as a sentence on one Space among others. `space`: as this reader may name it."""
    if figures := arrived(bringing):
        return _("%(space)s has ended and delivers its results: %(figures)s.") % {"space": space, "figures": figures}
    return _("%(space)s has ended and delivers its results.") % {"space": space}


def as_json(bringing: Delivery) -> dict[str, Any]:
    """Return the figures for programs. Of a worker that did not say how much there is, `files` and `bytes` are 0."""
    return {
        "since": bringing.since.isoformat(),
        "files": bringing.files,
        "files_here": bringing.files_here,
        "bytes": bringing.size,
        "bytes_here": bringing.size_here,
    }
