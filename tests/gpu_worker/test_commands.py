"""A child process ends when somebody who watches it says so, and its children with it."""

from __future__ import annotations

import os
import resource
import threading
from pathlib import Path

import pytest

from gpu_worker.commands import run_command
from tests.gpu_worker.worker import eventually


class Enough(Exception):
    pass


def test_what_the_watcher_raises_ends_the_command_and_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"

    def watch() -> None:
        if pids.exists() and len(pids.read_text().split()) == 2:
            raise Enough

    with pytest.raises(Enough):
        run_command(
            ("sh", "-c", f"sleep 600 & echo $$ $! > {pids}; wait"),
            env=os.environ,
            output=lambda data: None,
            cancel=threading.Event(),
            watch=watch,
        )

    eventually(lambda: not any(lives(pid) for pid in pids.read_text().split()), what="the end of both")


def test_many_open_connections_are_in_no_commands_way() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    visitors = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
    said: list[bytes] = []
    try:
        code = run_command(("echo", "built"), env=os.environ, output=said.append, cancel=threading.Event())
    finally:
        for descriptor in visitors:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert (code, b"".join(said)) == (0, b"built\n")


def lives(pid: str) -> bool:
    try:
        return not Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except OSError:
        return False
