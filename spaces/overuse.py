"""A job used more of a GPU than it reserved: the event's facts as one sentence for one reader.

The stored sentence names nobody, for whoever reads a public Space's history may not know of its neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _

from spaces import words
from spaces.durations import gigabytes
from spaces.why import Reader

EVENT = "vram_exceeded"


def sentence(facts: Mapping[str, Any], *, reader: Reader) -> str:
    """Return what was used of what was reserved and where, and who is at risk by it, as far as the reader may know."""
    gpu = facts["gpu"]
    said = _("It uses %(used)s; %(reserved)s are reserved on %(gpu)s.") % {
        "used": gigabytes(facts["used_mib"]),
        "reserved": gigabytes(facts["reserved_mib"]),
        "gpu": words.gpu_name(gpu["index"], gpu["model"]),
    }
    names = sorted(set(facts["at_risk"]))
    if not names:
        return f"{said} " + _("Nobody else is on that GPU.")
    seen = [name for name in names if reader.operator or name in reader.spaces]
    return f"{said} " + _("At risk: %(names)s.") % {"names": words.holders(seen, hidden=len(names) - len(seen))}
