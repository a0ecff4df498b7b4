"""The worker needs nothing of the server: neither its code nor its libraries."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import gpu_worker

PACKAGE = Path(gpu_worker.__file__).parent
SERVER = ["django", "rest_framework", "channels", "openface", "jobs", "workers", "spaces", "runtime_proxy", "psycopg"]


def loaded_by(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sorted(sys.modules))"],
        cwd=PACKAGE.parent, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_every_module_loads_without_the_server() -> None:
    modules = [
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for path in PACKAGE.rglob("*.py")
        if path.stem != "__init__"
    ]

    loaded = loaded_by("\n".join(f"import {name}" for name in modules))

    assert "gpu_worker" in loaded
    assert loaded.isdisjoint(SERVER)


@pytest.mark.parametrize(("library", "owner"), [("docker", "containers"), ("pynvml", "gpus.py")])
def test_each_foreign_world_has_one_door(library: str, owner: str) -> None:
    imports = (f"import {library}\n", f"from {library} ", f"from {library}.")
    users = {
        path.relative_to(PACKAGE).parts[0]
        for path in PACKAGE.rglob("*.py")
        if any(line in path.read_text() for line in imports)
    }

    assert users == {owner}


def test_the_command_explains_itself() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gpu_worker", "--help"], cwd=PACKAGE.parent, capture_output=True, text=True, check=True
    )

    for command in ("run", "enroll", "status", "doctor", "verify", "pause", "resume", "leave"):
        assert f"\n    {command} " in done.stdout
    assert "exit codes:" in done.stdout
