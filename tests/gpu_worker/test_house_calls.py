"""The doctor comes back: what an operator reads of a machine is true of now, not of the worker's start."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.gpu_worker.control_plane import ControlPlane
from tests.gpu_worker.worker import WorkerProcess, eventually


def check(message: dict[str, Any], name: str) -> bool | None:
    found: bool | None = next(check["ok"] for check in message["doctor"] if check["check"] == name)
    return found


def test_what_was_mended_under_a_running_worker_is_told(
    plane: ControlPlane, make_worker: Callable[..., WorkerProcess], tmp_path: Path
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "git").symlink_to(str(shutil.which("git")))
    make_worker(PATH=str(programs), DOCTOR_SECONDS="1").start()
    assert check(plane.registers[-1], "git_lfs") is False

    lfs = programs / "git-lfs"
    lfs.write_text("#!/bin/sh\n")
    os.chmod(lfs, 0o755)

    told = eventually(
        lambda: next((beat for beat in plane.beats if beat.get("doctor") and check(beat, "git_lfs")), None),
        what="the news",
    )
    assert check(told, "git") is True
    eventually(lambda: any("doctor" not in beat for beat in plane.beats), what="a heartbeat without news")


def test_a_machine_is_examined_only_at_the_start_where_that_is_wished(
    plane: ControlPlane, make_worker: Callable[..., WorkerProcess]
) -> None:
    make_worker(DOCTOR_SECONDS="0").start()

    eventually(lambda: len(plane.beats) > 3, what="some heartbeats")

    assert plane.registers[-1]["doctor"]
    assert not any("doctor" in beat for beat in plane.beats)
