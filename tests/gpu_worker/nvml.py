"""The stand-in for the NVIDIA driver's library, compiled."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("nvml_stub.c")


def build_nvml_stub(directory: Path) -> Path:
    """The directory with ``libnvidia-ml.so.1``; skips the test where there is no C compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler for the stand-in of the driver")
    target = directory / "nvml" / "libnvidia-ml.so.1"
    target.parent.mkdir()
    flags = ["-O1", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1"]
    subprocess.run([compiler, *flags, "-o", target, SOURCE], check=True)
    return target.parent
