"""`RUN --mount=type=cache`: each repository its own, or one Space could put a poisoned package into another's build.

BuildKit keeps such directories for all builds of an engine, by their path or the id that the Dockerfile gives. A newer
one knows a build argument for it (`NAMESPACE`), which reaches triggers of base images too; an older one is told in the
text.
"""

from __future__ import annotations

import re

NAMESPACE = "BUILDKIT_CACHE_MOUNT_NS"

_MOUNT = re.compile(r"--mount=(?=(?:[^\s,]*,)*type=cache(?:[,\s]|$))(?P<options>[^\s\\]+)", re.IGNORECASE)
_ID = re.compile(r"(?P<before>^|,)id=(?P<id>[^,]*)", re.IGNORECASE)
_TARGET = re.compile(r"(?:^|,)(?:target|dst|destination)=(?P<target>[^,]*)", re.IGNORECASE)


def separated(dockerfile: str, namespace: str) -> str:
    """The same Dockerfile, with cache mounts of *namespace* alone. Lines keep their numbers."""

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

    return _MOUNT.sub(name, dockerfile)
