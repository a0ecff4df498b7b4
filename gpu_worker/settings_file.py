"""Settings from a file, so that `sudo openface-gpu-worker pause` knows what the service knows.

The same file is the unit's `EnvironmentFile=`: one ``NAME=value`` a line, ``#`` before comments, quotes where wanted.
So it may name more than the worker's own settings: what Docker's client, git or pip read belongs there too.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, MutableMapping
from pathlib import Path

from gpu_worker.errors import ConfigError
from gpu_worker.settings_values import shown

FILE_VARIABLE = "OPENFACE_WORKER_SETTINGS"
DEFAULT_FILE = Path("/etc/openface-gpu-worker/worker.env")
_LINE = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)=(?P<value>.*)")


# What others read that a service may have in its environment: Docker, proxies, certificates, git, pip, ...
_FOREIGN = re.compile(
    r"(DOCKER|BUILDX|BUILDKIT|COMPOSE|CUDA|NVIDIA|GIT|SSL|PIP|PYTHON|LC|XDG|SYSTEMD|LD|HTTPS?|OTEL)_\w+"
    r"|\w+_PROXY|LANG|LANGUAGE|PATH|HOME|USER|SHELL|TZ|TMPDIR|PYTHON\w+|(REQUESTS|CURL)_CA_BUNDLE"
    r"|OPENFACE_WORKER_(SETTINGS|CONTAINER)",
    re.IGNORECASE,
)
_NEAR = 0.8  # of difflib's ratio: one or two letters of a name


def bring(environ: MutableMapping[str, str], default: Path = DEFAULT_FILE) -> None:
    """Fill what *environ* leaves open from the file, for Docker's client and git as well. Raises ConfigError."""
    for name, value in from_file(environ, default).items():
        environ.setdefault(name, value)


def from_file(environ: Mapping[str, str], default: Path = DEFAULT_FILE) -> dict[str, str]:
    """What the file says; nothing where there is none. Raises ConfigError.

    A file that is named has to be there; the usual one may be missing.
    """
    named = environ.get(FILE_VARIABLE, "").strip()
    path = path_of(environ, default)
    try:
        text = path.read_text()
    except FileNotFoundError:
        if named:
            raise ConfigError(f"{FILE_VARIABLE} names {path}, which is not there.") from None
        return {}
    except (OSError, ValueError) as problem:
        why = getattr(problem, "strerror", None) or str(problem)
        raise ConfigError(f"The settings in {shown(str(path))} cannot be read: {why}.") from problem
    return parse(text, path)


def path_of(environ: Mapping[str, str], default: Path = DEFAULT_FILE) -> Path:
    named = environ.get(FILE_VARIABLE, "").strip()
    return Path(named) if named else default


def misspelt(settings: Mapping[str, str], known: Collection[str]) -> list[str]:
    """A sentence for each name in *settings* that nobody reads, with the one that may be meant."""
    sentences = []
    for name in settings:
        if name in known or _FOREIGN.fullmatch(name):
            continue
        near = difflib.get_close_matches(name.upper(), sorted(known), n=1, cutoff=_NEAR)
        sentences.append(f"{name}: did you mean {near[0]}?" if near else f"{name} is no setting of the worker")
    return sentences


def parse(text: str, path: Path) -> dict[str, str]:
    """The settings of one file. Raises ConfigError with the number of a line that is none."""
    settings = {}
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped or stripped[0] in "#;":
            continue
        match = _LINE.fullmatch(stripped)
        if match is None or "\0" in stripped:
            raise ConfigError(f"Line {number} of {path} is no setting; write NAME=value.")
        value = match["value"].strip()
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
            value = value[1:-1]
        settings[match["name"]] = value
    return settings
