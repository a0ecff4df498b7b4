"""The stand-in for a public base image, where no registry is reached: what apps take for granted is in it."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

MAKE = Path(__file__).resolve().parents[2] / "scripts" / "make_base_image.py"

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    tag = f"openface-local/test-{uuid.uuid4().hex[:12]}:1"
    subprocess.run([sys.executable, str(MAKE), tag], check=True, capture_output=True, timeout=100)
    yield tag
    subprocess.run(["docker", "rmi", "--force", tag], check=True, capture_output=True, timeout=60)


def inside(image: str, *command: str) -> str:
    run = ["docker", "run", "--rm", "--network", "none", image, *command]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_python_runs_with_its_compiled_modules_and_pip(image: str) -> None:
    assert inside(image, "python3", "-c", "import ssl, sqlite3, ctypes, zlib; print('fine')") == "fine"
    assert inside(image, "python", "-m", "pip", "--version").startswith("pip ")


@pytest.mark.parametrize("library", ["libstdc++.so.6", "libgcc_s.so.1", "libpthread.so.0", "libdl.so.2", "librt.so.1"])
def test_libraries_that_compiled_packages_expect_are_there(image: str, library: str) -> None:
    # Without the first, NumPy does not load, and a Gradio app ends before it answers.
    assert inside(image, "python3", "-c", f"import ctypes; ctypes.CDLL('{library}'); print('fine')") == "fine"


def test_a_shell_is_there_for_run_steps(image: str) -> None:
    assert inside(image, "/bin/sh", "-c", "echo $((40 + 2))") == "42"
