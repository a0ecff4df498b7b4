"""The disk with the worker's own data is full: what runs goes on, and a stop is a stop."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gpu_worker.commands_of_owner import make_command
from tests.gpu_worker.conftest import ask, clear_away
from tests.gpu_worker.control_plane import ControlPlane
from tests.gpu_worker.worker import WEB_APP, WorkerProcess, eventually, make_repository

MIB = 1024 * 1024


@pytest.fixture
def worker(plane: ControlPlane, tmp_path: Path) -> Iterator[WorkerProcess]:
    """One whose data lie on a disk of 560 MiB, all but empty, and that has no floor."""
    place = tmp_path / "small"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=560m", "tmpfs", str(place)], check=False).returncode != 0:
        pytest.skip("no right to mount a small disk here")
    worker = WorkerProcess(plane, tmp_path, executor="process", settings={"DISK_FLOOR_MIB": "0"})
    worker.data_dir = place / "data"
    worker.environment["WORKER_DATA_DIR"] = str(worker.data_dir)
    yield worker
    clear_away(worker)
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(place: Path) -> None:
    """Leave not a byte there."""
    with open(place / "filler", "wb", buffering=0) as filler:
        for size in (4 * MIB, 4096, 1):
            try:
                while filler.write(bytes(size)) == size:
                    pass
            except OSError:
                continue


def test_an_app_goes_on_and_is_stopped_when_asked(plane: ControlPlane, worker: WorkerProcess) -> None:
    worker.start()
    job = plane.queue_job("hello", make_repository(plane.git_root, "hello", {"app.py": WEB_APP}), app_file="app.py")
    eventually(lambda: plane.state(job) == "running", what="running")
    lease = plane.lease_of(job)
    assert lease is not None

    fill(worker.data_dir.parent)
    with pytest.raises(OSError):
        (worker.data_dir / "one-more").write_bytes(b"x")

    beats = len(plane.beats)
    eventually(lambda: len(plane.beats) > beats + 3, what="more heartbeats")
    assert ask(worker, lease.id)[0] == 200
    lease.want = "stop"
    eventually(lambda: plane.state(job) == "completed", what="the stop")
    eventually(lambda: plane.beats[-1]["holds"] == [], what="an empty inventory")
    assert "journal cannot be written; jobs go on" in worker.log()
    assert worker.log().count("journal cannot be written") < 5
    os.unlink(worker.data_dir.parent / "filler")
    assert worker.terminate() == 0


def test_the_owner_can_pause_with_not_a_byte_left(
    plane: ControlPlane, worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = make_command(monkeypatch, capsys)
    worker.start()
    eventually(lambda: plane.beats, what="a heartbeat")

    fill(worker.data_dir.parent)
    with pytest.raises(OSError):
        (worker.data_dir / "one-more").write_bytes(b"x")
    command(worker, "pause", "--now", "--reason", "my disk is full")

    eventually(lambda: plane.beats[-1]["paused_reason"] == "my disk is full", what="the pause")
    command(worker, "resume")
    eventually(lambda: plane.beats[-1]["paused_reason"] != "my disk is full", what="the end of the pause")
