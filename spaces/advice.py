"""Advice to the owner of a Space about its topics and its README: a code and its figures, worded for who reads it.

It is stored with a run as code and figures, for its readers may speak another language than whoever started it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

if TYPE_CHECKING:
    from django.utils.functional import _StrPromise

# What is wrong with one key of the README's block. Each begins with that key.
README_VALUES: Mapping[str, _StrPromise] = {
    "readme_tag": gettext_lazy("%(key)s: its tag does not fit the value."),
    "readme_text": gettext_lazy("%(key)s: expected a text."),
    "readme_choice": gettext_lazy("%(key)s: expected one of %(allowed)s."),
    "readme_version": gettext_lazy('%(key)s: expected a version, as in "3.11".'),
    "readme_file": gettext_lazy("%(key)s: expected the path of a file in the repository."),
    "readme_path_outside": gettext_lazy("%(key)s: expected a path inside the repository, without '..'."),
    "readme_port": gettext_lazy("%(key)s: expected a port between 1 and 65535."),
    "readme_duration": gettext_lazy('%(key)s: expected a duration such as "30m" or "1h".'),
    "readme_duration_bounds": gettext_lazy("%(key)s: expected between one second and one day."),
    "readme_flag": gettext_lazy("%(key)s: expected true or false."),
}

SENTENCES: Mapping[str, _StrPromise] = {
    "topics_kinds": gettext_lazy("The topics %(topics)s exclude each other: it runs as %(kind)s."),
    "topics_beside_cpu": gettext_lazy("The topic cpu says where it runs: %(topics)s changes nothing there."),
    # Waiting for a GPU can be seen and mended; running without one where one was wanted cannot.
    "topics_cpu_and_gpu": gettext_lazy("The topics cpu and gpu exclude each other: it waits for a GPU."),
    "topic_no_size": gettext_lazy("The topic %(topic)s is no size that a GPU can have: ignored."),
    "topic_no_count": gettext_lazy("The topic %(topic)s is no number of GPUs between 1 and %(most)d: ignored."),
    "topics_sizes": gettext_lazy("There are several topics vram-…: the largest counts, %(largest)d MiB."),
    "topics_counts": gettext_lazy("There are several topics gpus-…: the largest counts, %(largest)d GPUs."),
    "readme_too_large": gettext_lazy("It is larger than %(limit_kib)d KiB: not read."),
    "readme_block_long": gettext_lazy("The block is longer than %(limit)d characters: ignored."),
    "readme_block_line": gettext_lazy("The block is not valid YAML (line %(line)d of the README): ignored."),
    "readme_block_yaml": gettext_lazy("The block is not valid YAML: ignored."),
    "readme_block_unreadable": gettext_lazy("The block cannot be read as YAML: ignored."),
    "readme_block_no_keys": gettext_lazy("The block is not a list of 'key: value' lines: ignored."),
    **README_VALUES,
}


@dataclass(frozen=True)
class Advice:
    """One piece of advice. `facts` are what its sentence names."""

    code: str
    facts: Mapping[str, str | int] = field(default_factory=dict)

    @property
    def sentence(self) -> str:
        """What is to be said, without of what."""
        return str(SENTENCES[self.code]) % self.facts

    def __str__(self) -> str:
        """The whole of it in the language of who reads: what a README says is told as such."""
        if self.code.startswith("readme_"):
            return _("README: %(what)s") % {"what": self.sentence}
        return self.sentence

    def as_json(self) -> dict[str, Any]:
        """As it is stored with a run."""
        return {"code": self.code, "facts": dict(self.facts)}


def worded(stored: Any) -> str:
    """Word what is stored with a run. Runs of earlier versions have a sentence there, which is told as it is."""
    if not isinstance(stored, Mapping):
        return str(stored)
    try:
        return str(Advice(stored["code"], stored.get("facts") or {}))
    except (KeyError, TypeError, ValueError):  # of a newer version, before this one was put back
        return str(stored.get("code", ""))
