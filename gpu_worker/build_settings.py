"""Builds: where they get what a repository does not bring itself (base images, packages), and what they may use.

For machines that reach no public registry or index. What is said here counts for Dockerfiles that the worker makes; a
repository's own Dockerfile is built as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpu_worker.errors import ConfigError
from gpu_worker.settings_values import existing_file, shown
from gpu_worker.whole_numbers import whole_number

PUBLIC_PYTHON_IMAGE = "python:{version}-slim"
DEFAULT_PYTHON = "3.11"  # where the README names none
VERSION = "{version}"
DEFAULT_PIDS = 4096
_IMAGE = re.compile(r"[a-z0-9][\w.:/@-]{0,511}", re.ASCII)
_PATTERN = re.compile(r"[a-z0-9*][\w.:/@*-]{0,511}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class BuildSettings:
    """`pip_config` and `apt_sources` are files of this machine that builds see, and images never hold."""

    python_image: str = PUBLIC_PYTHON_IMAGE
    """`{version}` stands for the Python that a README asks for. Without it every app gets this image's Python."""
    pip_config: Path | None = None
    """A pip.conf: another index, for example."""
    apt_sources: Path | None = None
    """A sources.list, or a file of the newer format that ends in .sources; it replaces the image's own."""
    memory_mib: int | None = None
    """What the steps of all builds may have together; None: half of the machine's."""
    pids: int = DEFAULT_PIDS
    """Likewise, of processes and threads."""
    lent: tuple[str, ...] = ()
    """Images that are on this machine only and that builds may use all the same: names, or patterns of them."""

    @property
    def lent_images(self) -> tuple[str, ...]:
        """All that the owner has named, in whatever setting."""
        return (*self.lent, self.python_image_for("*"))

    def python_image_for(self, version: str) -> str:
        return self.python_image.replace(VERSION, version)

    @property
    def any_python(self) -> bool:
        """Whether an app gets the Python that its README asks for."""
        return VERSION in self.python_image


def load(values: Mapping[str, str], *, base_image: str) -> BuildSettings:
    """Settings from the worker's variables. Raises ConfigError with a sentence.

    *base_image* is what the machine has for Dockerfiles that let it choose: where it has one, and nothing else is
    said, it is the best guess for these too.
    """
    if base_image and _IMAGE.fullmatch(base_image) is None:
        raise ConfigError(f"OPENFACE_BASE_IMAGE is {shown(base_image)}; it is the name of an image, as debian:12.")
    image = values.get("OPENFACE_PYTHON_IMAGE") or base_image or PUBLIC_PYTHON_IMAGE
    if _IMAGE.fullmatch(image.replace(VERSION, DEFAULT_PYTHON)) is None:
        raise ConfigError(
            f"OPENFACE_PYTHON_IMAGE is {shown(image)}; it is the name of an image, as {PUBLIC_PYTHON_IMAGE}."
        )
    lent = tuple(values.get("LENT_IMAGES", "").replace(",", " ").split())
    for name in lent:
        if _PATTERN.fullmatch(name) is None:
            raise ConfigError(f"LENT_IMAGES names {shown(name)}; it is a list of images, with * for any characters.")
    return BuildSettings(
        python_image=image,
        lent=(*lent, base_image) if base_image else lent,
        pip_config=existing_file(values, "OPENFACE_PIP_CONFIG"),
        apt_sources=existing_file(values, "OPENFACE_APT_SOURCES"),
        memory_mib=whole_number(values, "BUILD_MEMORY_MIB", lowest=64, highest=16 * 1024 * 1024),
        pids=whole_number(values, "BUILD_PIDS", lowest=16, highest=4_194_304) or DEFAULT_PIDS,
    )
