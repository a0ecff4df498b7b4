"""Settings from a file, so that `sudo openface-gpu-worker pause` knows what the service knows.

The same file is the unit's `EnvironmentFile=`: one ``NAME=value`` a line, ``#`` before comments, quotes where wanted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from gpu_worker.errors import ConfigError

FILE_VARIABLE = "OPENFACE_WORKER_SETTINGS"
DEFAULT_FILE = Path("/etc/openface-gpu-worker/worker.env")
_LINE = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)=(?P<value>.*)")


def with_settings_file(environ: Mapping[str, str], default: Path = DEFAULT_FILE) -> dict[str, str]:
    """The environment, with what it leaves open filled from the file. Raises ConfigError.

    A file that is named has to be there; the usual one may be missing.
    """
    named = environ.get(FILE_VARIABLE, "").strip()
    path = Path(named) if named else default
    try:
        text = path.read_text()
    except FileNotFoundError:
        if named:
            raise ConfigError(f"{FILE_VARIABLE} names {path}, which is not there.") from None
        return dict(environ)
    except (OSError, UnicodeError) as problem:
        raise ConfigError(f"The settings in {path} cannot be read: {problem}.") from problem
    return {**parse(text, path), **environ}


def parse(text: str, path: Path) -> dict[str, str]:
    """The settings of one file. Raises ConfigError with the number of a line that is none."""
    settings = {}
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped or stripped[0] in "#;":
            continue
        match = _LINE.fullmatch(stripped)
        if match is None:
            raise ConfigError(f"Line {number} of {path} is no setting; write NAME=value.")
        value = match["value"].strip()
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
            value = value[1:-1]
        settings[match["name"]] = value
    return settings
