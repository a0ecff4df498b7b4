"""A Space whose installation takes until a file appears, so that a test decides when its build ends."""

from __future__ import annotations

from pathlib import Path

_BACKEND = """
import os, sys, time, zipfile

def build_wheel(directory, *arguments, **more):
    print("waiting", file=sys.stderr, flush=True)
    while not os.path.exists({gate!r}):
        time.sleep(0.05)
    name = "slow-1-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(directory, name), "w") as wheel:
        wheel.writestr("slow-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: slow\\nVersion: 1\\n")
        wheel.writestr("slow-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("slow-1.dist-info/RECORD", "")
    return name
"""


def waits_for(gate: Path) -> dict[str, str]:
    """Files beside the app: requirements.txt names a package that pip builds once *gate* exists."""
    return {
        "requirements.txt": "--no-index\n./slow\n",
        "slow/pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "slow"\nbackend-path = ["."]\n',
        "slow/slow.py": _BACKEND.format(gate=str(gate)),
    }
