"""What runs the Spaces here: a container engine where one answers, plain processes elsewhere. Never chosen silently."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PUBLIC_BASE_IMAGE = "python:3.11-slim"
STAND_IN = f"openface-local/python:{platform.python_version()}"
_ANSWER_SECONDS = 20
_PULL_SECONDS = 120
_MAKE_SECONDS = 300
_MAKE_BASE_IMAGE = Path(__file__).resolve().parent.parent.parent / "scripts" / "make_base_image.py"


@dataclass(frozen=True)
class Engine:
    """The worker's executor, the base image that sample Spaces build on, and the sentence that says so."""

    executor: str
    base_image: str
    sentence: str

    @property
    def has_containers(self) -> bool:
        return self.executor == "docker"


def choose() -> Engine:
    """Look at this machine and decide. Takes a while where an image has to be fetched or made, the first time."""
    if not shutil.which("docker"):
        return _processes("there is no `docker` here")
    if not _succeeds("docker", "info", seconds=_ANSWER_SECONDS):
        return _processes("`docker info` finds no engine that answers")
    if _succeeds("docker", "image", "inspect", PUBLIC_BASE_IMAGE, seconds=_ANSWER_SECONDS):
        return Engine("docker", PUBLIC_BASE_IMAGE, f"Spaces run in containers; samples build on {PUBLIC_BASE_IMAGE}")
    if _succeeds("docker", "image", "inspect", STAND_IN, seconds=_ANSWER_SECONDS):
        return _stand_in()
    if _succeeds("docker", "pull", "--quiet", PUBLIC_BASE_IMAGE, seconds=_PULL_SECONDS):
        return Engine(
            "docker", PUBLIC_BASE_IMAGE, f"Spaces run in containers; {PUBLIC_BASE_IMAGE} was fetched for them"
        )
    made = subprocess.run(
        [sys.executable, str(_MAKE_BASE_IMAGE), STAND_IN],
        capture_output=True,
        text=True,
        timeout=_MAKE_SECONDS,
        check=False,
    )
    if made.returncode:
        why = made.stderr.strip() or "it could not be made"
        return _processes(f"{PUBLIC_BASE_IMAGE} cannot be pulled, and of a local stand-in this machine says: {why}")
    return _stand_in()


def _stand_in() -> Engine:
    return Engine(
        "docker",
        STAND_IN,
        f"Spaces run in containers; {PUBLIC_BASE_IMAGE} cannot be pulled here, so samples build on {STAND_IN}, "
        "made from this machine's own Python",
    )


def _processes(why: str) -> Engine:
    return Engine("process", "", f"Spaces run as plain processes, without any isolation, because {why}")


def _succeeds(*command: str, seconds: float) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=seconds, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False
