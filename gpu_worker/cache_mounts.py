"""`RUN --mount=type=cache`: each repository its own, or one Space could put a poisoned package into another's build.

BuildKit keeps such directories for all builds of an engine, by their path or the id that the Dockerfile gives. A build
argument (`NAMESPACE`) keeps them apart, for triggers of base images too; every BuildKit that can read such a Dockerfile
by itself knows it. A program that is older than that, or may be, is told in the text.
"""

from __future__ import annotations

import re

from gpu_worker.dockerfile_names import syntaxes
from gpu_worker.dockerfile_text import readings, without_heredocs
from gpu_worker.errors import JobFailed
from gpu_worker.tree_names import shown

NAMESPACE = "BUILDKIT_CACHE_MOUNT_NS"  # known since BuildKit 0.6 and docker/dockerfile 1.1.2, so since Docker 19.03

# Names of docker/dockerfile that are never an older one. A digest may be any, whatever name stands before it.
_KNOWS_NAMESPACE = re.compile(
    r"(?:docker\.io/)?docker/dockerfile(?:-upstream)?"
    r"(?::(?:1|latest|labs|master|1-labs|master-labs|1\.(?:[2-9]|\d\d)(?:\.\d+)?(?:-(?:labs|rc\d+))?))?"
)
_FLAGS = re.compile(r"(?:^|(?<=\n))[ \t]*(?:ONBUILD\s+)?RUN(?P<flags>(?:(?:\s|\\[ \t]*\r?\n)+--\S+)+)", re.IGNORECASE)
_MOUNT = re.compile(r"--mount=(?=(?:[^\s,]*,)*type=cache(?:[,\s]|$))(?P<options>[^\s\\]+)", re.IGNORECASE)
_ID = re.compile(r"(?P<before>^|,)id=(?P<id>[^,]*)", re.IGNORECASE)
_TARGET = re.compile(r"(?:^|,)(?:target|dst|destination)=(?P<target>[^,]*)", re.IGNORECASE)
_FLAGGED = re.compile(r"\s*(?:ONBUILD\s+)?RUN\s+--", re.IGNORECASE)  # flags come first, or there are none
_ANY_MOUNT = re.compile(r"--mount=(?P<options>\S*)", re.IGNORECASE)
_CACHE = re.compile(r"(?:^|,)type=(?:cache(?:,|$)|[^,]*\$)", re.IGNORECASE)  # a variable may be anything


def separated(dockerfile: str, namespace: str) -> str:
    """The same Dockerfile, with cache mounts of *namespace* alone; lines keep their numbers.

    As it is where the build argument does that. Raises JobFailed (``syntax_refused``) where its words leave a doubt.
    """
    unsure = sorted(name for name in syntaxes(dockerfile) if _KNOWS_NAMESPACE.fullmatch(name) is None)
    if not unsure:
        return dockerfile
    told = without_heredocs(dockerfile, lambda text: _told(text, namespace))
    for instructions in readings(told):
        for instruction in instructions:
            if _FLAGGED.match(instruction) and not _is_separate(instruction, namespace):
                raise JobFailed(
                    "syntax_refused",
                    f"The Dockerfile is to be read by {shown(unsure[0])} (its line # syntax=). That may be one which "
                    "keeps the cache mounts of all Spaces together, and how they are written here leaves a doubt. "
                    "Name docker/dockerfile:1 there, without a digest.",
                )
    return told


def _told(text: str, namespace: str) -> str:
    seen = 0

    def name(mount: re.Match[str]) -> str:
        nonlocal seen
        seen += 1
        options = mount["options"]
        if options.endswith(",") and not _ID.search(options):  # it goes on in the next line
            return f"--mount=id={namespace}-{seen},{options}"
        if _ID.search(options):
            return "--mount=" + _ID.sub(lambda given: f"{given['before']}id={namespace}-{given['id']}", options)
        target = _TARGET.search(options)
        return f"--mount={options},id={namespace}-{target['target'] if target else ''}"

    def flags(instruction: re.Match[str]) -> str:
        return instruction[0].removesuffix(instruction["flags"]) + _MOUNT.sub(name, instruction["flags"])

    return _FLAGS.sub(flags, text)


def _is_separate(instruction: str, namespace: str) -> bool:
    """Whether each cache mount that an instruction without quoting may have is of this namespace alone."""
    for mount in _ANY_MOUNT.finditer(instruction):
        ids = [given["id"] for given in _ID.finditer(mount["options"])]
        if _CACHE.search(mount["options"]) and not (ids and all(one.startswith(f"{namespace}-") for one in ids)):
            return False
    return True
