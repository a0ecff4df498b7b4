"""Why a container did not start, in a sentence for people: what the engine and the GPU toolkit say, explained.

The engine's own words follow in brackets, shortened: whoever asks for help will need them.
"""

from __future__ import annotations

import re

# Where the engine keeps a container's files on this machine: of no use to the Space's people.
_ROOT = re.compile(r"/\S*?/(?:overlay2|overlayfs|vfs|btrfs|zfs|snapshots)/\S*?(?:/merged|/fs)(?=/)")
LONGEST_QUOTE = 600  # characters; the toolkit repeats itself

_KNOWN: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"could not select device driver"),
        "Docker cannot give GPUs to containers: install the NVIDIA Container Toolkit and restart Docker.",
    ),
    (
        re.compile(r"unknown device:? *(?P<what>[\w./-]+)"),
        "The NVIDIA Container Toolkit does not know the GPU {what}, although the driver lists it; a restart of Docker "
        "or of the machine may help.",
    ),
    (
        re.compile(r"driver/library version mismatch", re.IGNORECASE),
        "The NVIDIA driver was updated, but the kernel still runs the old one: restart this machine.",
    ),
    (
        re.compile(r"unsatisfied condition: (?P<what>[^,\"\n]+?),? please update your driver", re.IGNORECASE),
        "The image needs {what}, which the driver of this machine is too old for.",
    ),
    (
        re.compile(r"libnvidia-ml\.so\.1: cannot open shared object"),
        "The NVIDIA Container Toolkit does not find the driver of this machine.",
    ),
    (
        re.compile(r"nvidia-container-cli: (?:initialization|detection) error: (?P<what>[^\"\n]+)"),
        "The NVIDIA Container Toolkit cannot use the driver of this machine ({what}).",
    ),
    (
        re.compile(r"exec: \\?\"(?P<what>[^\"\\]+)\\?\":.*(?:not found|no such file)", re.DOTALL),
        "The image's command {what} is not in the image.",
    ),
    (
        re.compile(r"exec format error"),
        "The image was built for another kind of processor than this machine has.",
    ),
    (
        re.compile(r"source (?P<what>/\S+) is not directory"),
        "The image has a file at {what}, where the directory that the Space keeps has to be.",
    ),
    (
        re.compile(r"cannot mount volume over existing file, file exists (?P<what>/[^\s:]+)"),
        "The image has a file at {what}, where the directory that the Space keeps has to be.",
    ),
    (re.compile(r"no space left on device"), "The disk of this machine is full."),
)


def explain(text: str) -> str:
    """The engine's refusal to create or start a container as a sentence."""
    text = _ROOT.sub("", text)
    for pattern, sentence in _KNOWN:
        if (found := pattern.search(text)) is not None:
            said = sentence.format(**{name: value.strip() for name, value in found.groupdict().items()})
            return f"{said} ({_short(text)})"
    return f"The engine could not start the container: {_short(text)}"


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]}…"
