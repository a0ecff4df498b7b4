"""What the owner reads when a build fails: one sentence, made of what BuildKit says.

BuildKit says much that only its makers understand. What an owner can do something about has a reason of its own.
"""

from __future__ import annotations

import re

from gpu_worker.errors import JobFailed
from gpu_worker.output import CONTROLS
from gpu_worker.tree_names import one_line

TAIL_BYTES = 8192
COMPLAINT_CHARACTERS = 500

# BuildKit names the step in which it asked for an image, and repeats it above the error.
_NO_BASE_IMAGE = re.compile(
    rb"> \[internal\] load metadata for (?P<name>\S+?):?\r?\n(?s:.*)"
    rb"(no such host|connection refused|timeout|not found|denied|unauthorized|no route to host|i/o)"
)
_NO_SYNTAX = re.compile(rb"> resolve image config for (?:docker-image://)?(?P<name>\S+?):?\r?\n")
_UNKNOWN_INSTRUCTION = re.compile(rb"unknown instruction: ", re.IGNORECASE)
_UNKNOWN_FLAG = re.compile(rb"[Uu]nknown flag: (?:--)?(?P<flag>[\w-]+)")
_NO_APT = re.compile(rb"apt-get: (?:command )?not found")
_FULL = re.compile(rb"no space left on device|ENOSPC", re.IGNORECASE)
_HEREDOC = re.compile(r"^\s*(?:RUN|COPY|ADD)\b.*<<-?\s*[\"']?\w+", re.MULTILINE | re.IGNORECASE)


class LastLines:
    """The end of a build's output."""

    def __init__(self) -> None:
        self._tail = b""

    @property
    def tail(self) -> bytes:
        return self._tail

    def add(self, data: bytes) -> None:
        self._tail = (self._tail + data)[-TAIL_BYTES:]

    def failure(self, code: int, *, dockerfile: str = "", builder: str = "") -> JobFailed:
        """What went wrong. *dockerfile* is what was built, *builder* the version of who built it."""
        return (
            self._full_disk()
            or self._syntax_out_of_reach()
            or self._no_base_image()
            or self._too_new(dockerfile, builder)
            or self._no_apt()
            or JobFailed("build_failed", f"The build ended with code {code}: {self.complaint()}")
        )

    def complaint(self) -> str:
        """The line that says most."""
        said = CONTROLS.sub("", self._tail.decode(errors="replace").replace("\r", "\n"))
        lines = [one_line(line.strip()) for line in said.splitlines() if line.strip()]
        errors = [line for line in lines if "error" in line.lower()]
        return (errors or lines or ["no output"])[-1][:COMPLAINT_CHARACTERS]

    def _full_disk(self) -> JobFailed | None:
        if _FULL.search(self._tail) is None:
            return None
        return JobFailed("disk_full", "There was no space left for the image.")

    def _syntax_out_of_reach(self) -> JobFailed | None:
        """The line `# syntax=` names an image that knows how to read the rest; it is fetched first."""
        image = _NO_SYNTAX.search(self._tail)
        if image is None:
            return None
        return JobFailed(
            "syntax_unavailable",
            f"The Dockerfile's line # syntax= asks for the image {_name(image)}, which could not be fetched by this "
            f"worker: {self._last_clause()}. Without that line the worker's own BuildKit reads it.",
        )

    def _no_base_image(self) -> JobFailed | None:
        """A base image that cannot be had is no fault of the Dockerfile's steps."""
        image = _NO_BASE_IMAGE.search(self._tail)
        if image is None:
            return None
        sentence = f"The base image {_name(image)} could not be fetched by this worker: {self._last_clause()}."
        return JobFailed("no_base_image", sentence)

    def _too_new(self, dockerfile: str, builder: str) -> JobFailed | None:
        """Syntax that came with a newer BuildKit; an older one takes a heredoc's text for instructions."""
        by = f" ({builder})" if builder else ""
        if _UNKNOWN_INSTRUCTION.search(self._tail) and _HEREDOC.search(dockerfile):
            return JobFailed(
                "syntax_too_new",
                f"The Dockerfile has a heredoc (<<), which the BuildKit of this worker{by} does not know. "
                "Write its commands with && in one RUN, or ask for a newer Docker.",
            )
        flag = _UNKNOWN_FLAG.search(self._tail)
        if flag is None:
            return None
        name = flag["flag"].decode(errors="replace")
        return JobFailed(
            "syntax_too_new", f"The Dockerfile uses --{name}, which the BuildKit of this worker{by} does not know."
        )

    def _no_apt(self) -> JobFailed | None:
        if _NO_APT.search(self._tail) is None:
            return None
        return JobFailed("build_failed", "The base image has no apt-get, which the build needs for Debian packages.")

    def _last_clause(self) -> str:
        return self.complaint().rpartition(": ")[2]


def _name(image: re.Match[bytes]) -> str:
    """As people write it."""
    return (
        one_line(image["name"].decode(errors="replace")).removeprefix("docker.io/library/").removeprefix("docker.io/")
    )
