"""Which images of this machine a build may use: those that came from a registry, and those that its owner lends.

BuildKit takes an image that is here by its name, whoever made it: one of another Space, or one that the owner built for
himself. Whoever may push to a Space writes its Dockerfile, so each name in it is judged before the build, and once more
what BuildKit says that its stages begin with. What a build adds from other machines is judged at the same time.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from gpu_worker.dockerfile_hosts import judge_added, judge_host, registry_of
from gpu_worker.dockerfile_names import image_names, syntaxes
from gpu_worker.errors import JobFailed
from gpu_worker.tree_names import shown

# The programs that read a Dockerfile see every image by its name too, and need not tell which: only Docker's own run.
TRUSTED_SYNTAX = ("docker/dockerfile:*", "docker/dockerfile-upstream:*")

_TOLD = re.compile(rb"#\d+ \[[^\]]*internal\] load metadata for (?P<image>\S+?):?")
_TOLD_SYNTAX = re.compile(rb"#\d+ resolve image config for (?:docker-image://)?(?P<syntax>\S+?):?")
LONGEST_LINE = 4096


@dataclass(frozen=True)
class LocalImage:
    """An image that is here."""

    repository: str
    """The forge's id of the repository that a worker built it for; "" where none did."""
    fetched: bool
    """Whether it came from a registry, where this machine may fetch it for anybody."""


class Lender:
    """Judges the names of images."""

    def __init__(self, find: Callable[[str], LocalImage | None], lent: Collection[str] = ()) -> None:
        """*find* looks for one on this machine; *lent* are names, or patterns of them, that the owner has said."""
        self._find, self._lent = find, [plain_name(name) for name in lent]

    def judge(self, image: str, repository: str) -> None:
        """Raise JobFailed (``image_not_lent``) where a build for *repository* may not use *image*.

        Also ``address_refused``, where it would be fetched from a registry that only this machine reaches.
        """
        name = plain_name(image)
        if self._is_lent(name) or name == "scratch:latest":
            return
        local = self._find(image)
        if local is None and (registry := registry_of(name)) is not None:
            judge_host(registry)
        own = local is None or local.repository == repository
        if local is None or own or (local.fetched and not local.repository):
            return
        raise JobFailed(
            "image_not_lent",
            f"The image {shown(name)} is on this worker's machine only, and its owner has not lent it to Spaces "
            "(setting LENT_IMAGES of the worker).",
        )

    def judge_syntax(self, image: str) -> None:
        """Raise JobFailed (``syntax_refused``) where *image* may not read a Dockerfile."""
        name = plain_name(image)
        if self._is_lent(name) or any(fnmatch.fnmatchcase(name, trusted) for trusted in TRUSTED_SYNTAX):
            return
        raise JobFailed(
            "syntax_refused",
            f"The Dockerfile wants to be read by {shown(name)} (its line # syntax=). Only docker/dockerfile may here: "
            "whatever reads a Dockerfile sees every image of the machine.",
        )

    def _is_lent(self, name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, lent) for lent in self._lent)


class NamedImages:
    """The images of one build, judged as they come up. Its methods raise JobFailed."""

    def __init__(self, lender: Lender, repository: str) -> None:
        self._lender, self._repository = lender, repository
        self._line = b""

    def read(self, dockerfile: str, build_args: Mapping[str, str]) -> None:
        """Judge what the text says, before anything of it is built."""
        for syntax in sorted(syntaxes(dockerfile)):
            self._lender.judge_syntax(syntax)
        for image in sorted(image_names(dockerfile, build_args)):
            self._lender.judge(image, self._repository)
        judge_added(dockerfile, build_args)

    def hear(self, output: bytes) -> None:
        """Judge what BuildKit says in its plain output: it names each image that a stage begins with."""
        *lines, rest = (self._line + output).split(b"\n")
        self._line = rest[:LONGEST_LINE]
        for line in lines:
            if (told := _TOLD.fullmatch(line.strip())) is not None:
                self._lender.judge(told["image"].decode(errors="replace"), self._repository)
            elif (told := _TOLD_SYNTAX.fullmatch(line.strip())) is not None:
                self._lender.judge_syntax(told["syntax"].decode(errors="replace"))


def plain_name(image: str) -> str:
    """The name as people write it, with its tag: ``python:3.11`` of ``docker.io/library/python:3.11``."""
    name = image.removeprefix("docker-image://").removeprefix("docker.io/").removeprefix("library/")
    complete = "@" in name or ":" in name.rpartition("/")[2] or name.endswith("*")
    return name if complete else f"{name}:latest"
