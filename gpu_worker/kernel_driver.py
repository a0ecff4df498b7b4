"""What the kernel module of the NVIDIA driver says by itself, in ``/proc`` and without the driver's library.

The library is the truth about GPUs as long as it answers. Where it does not, the kernel still knows which GPUs there
are, and whether library and module are of one version: after an update of the driver they differ until a restart.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/proc/driver/nvidia")
OWN_MAPS = Path("/proc/self/maps")
LIBRARY = "libnvidia-ml.so.1"
_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)?")
_LOADED_LIBRARY = re.compile(r"\s(/\S*)/libnvidia-ml\.so[^/\s]*")


@dataclass(frozen=True)
class Card:
    """One GPU as the kernel module lists it."""

    bus: str
    uuid: str | None
    """None: the module has not read it, as of a GPU that nobody has used since the start."""
    model: str | None


class KernelDriver:
    def __init__(self, root: Path = ROOT, maps: Path = OWN_MAPS) -> None:
        self._root, self._maps = root, maps

    def cards(self) -> list[Card]:
        """The GPUs in the order of their bus, which is the order in which the library counts them."""
        cards = []
        for file in sorted(self._root.glob("gpus/*/information")):
            fields = _fields(file)
            if fields.get("GPU Excluded", "No") != "Yes":  # by the owner, with a module option
                uuid = fields.get("GPU UUID", "")
                cards.append(
                    Card(file.parent.name, None if "?" in uuid or not uuid else uuid, fields.get("Model") or None)
                )
        return cards

    def version(self) -> str | None:
        """The version of the loaded module, None where there is none."""
        line = _text(self._root / "version").partition("\n")[0]
        found = _VERSION.search(line.partition("Module")[2])
        return found[0] if found else None

    def library_version(self) -> str | None:
        """The version of the library that lies where ours was loaded from: a newer one than ours after an update."""
        loaded = _LOADED_LIBRARY.search(_text(self._maps))
        if loaded is None:
            return None
        present = os.path.realpath(f"{loaded[1]}/{LIBRARY}")
        found = _VERSION.fullmatch(os.path.basename(present).removeprefix("libnvidia-ml.so."))
        return found[0] if found else None

    def outdated(self) -> str | None:
        """That the driver was updated under the running machine, in a sentence; None where it was not."""
        module, library = self.version(), self.library_version()
        if module is None or library is None or module == library:
            return None
        return (
            f"The NVIDIA driver on disk is {library}, but the kernel still runs {module}: "
            "no container can get a GPU until this machine is restarted."
        )


def _fields(file: Path) -> dict[str, str]:
    pairs = (line.partition(":") for line in _text(file).splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""
