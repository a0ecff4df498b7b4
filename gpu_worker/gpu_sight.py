"""Whether a running container still sees its GPU.

After ``systemctl daemon-reload`` on a machine whose control groups systemd manages, containers can lose the right to
use their GPU while the machine itself sees it well; only a new container gets it back. Nothing outside tells of it, so
we ask inside, now and then, with the program that the toolkit puts into every GPU container.
"""

from __future__ import annotations

from enum import Enum

PROBE = ("nvidia-smi", "-L")
LOST_SENTENCE = "The app runs, but its GPU is lost inside the container; a restart of the app brings it back."

# What a shell or the engine says of a program that is not there, or cannot run in this image (126, 127); an engine that
# cannot start it at all gives no code.
_NOT_ASKED = frozenset({None, 126, 127})
_LOST_WORDS = ("failed to initialize nvml", "no devices were found", "unknown error", "gpu is lost")


class Sight(Enum):
    SEEN = "seen"
    LOST = "lost"
    UNKNOWN = "unknown"
    """The image cannot run the program: nothing is known, and nothing is said."""


def judge(exit_code: int | None, output: bytes) -> Sight:
    """What the answer of PROBE inside a container means."""
    text = output.decode(errors="replace").lower()
    if exit_code in _NOT_ASKED:
        return Sight.UNKNOWN
    if exit_code == 0:
        return Sight.SEEN if "uuid" in text else Sight.LOST
    return Sight.LOST if any(words in text for words in _LOST_WORDS) else Sight.UNKNOWN
