"""What a worker left is found at the engine and the kernel, and removed; nothing else is touched."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest

from openface.demo import remains
from openface.demo.engine import Engine

PROCESSES = Engine("process", "", "")
CONTAINERS = Engine("docker", "", "")


def sleeper(worker: str, *, start_new_session: bool = False) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); import time; time.sleep(600)"],
        env={**os.environ, "OPENFACE_WORKER": worker},
        stdout=subprocess.PIPE,
        start_new_session=start_new_session,
    )


def is_up(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    process.stdout.readline()


@pytest.fixture
def worker() -> str:
    return str(uuid.uuid4())


@pytest.fixture
def processes(worker: str) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """An app in a session of its own, what it started, and an app of somebody else's worker."""
    started = {
        "app": sleeper(worker, start_new_session=True),
        "helper": sleeper(worker),
        "stranger": sleeper(str(uuid.uuid4()), start_new_session=True),
    }
    try:
        for process in started.values():
            is_up(process)
        yield started
    finally:
        for process in started.values():
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()


def test_an_app_is_known_by_its_leader_and_its_start(
    worker: str, processes: dict[str, subprocess.Popen[bytes]]
) -> None:
    (app,) = remains.apps_of(worker, PROCESSES)

    assert app.startswith(f"{processes['app'].pid}:")


def test_everything_of_a_worker_is_found_and_removed_and_no_more(
    worker: str, processes: dict[str, subprocess.Popen[bytes]]
) -> None:
    ours = {f"process {processes[name].pid}" for name in ("app", "helper")}
    assert set(remains.remains_of([worker], PROCESSES)) == ours

    remains.remove_remains([worker], PROCESSES)

    assert remains.remains_of([worker], PROCESSES) == []
    assert processes["stranger"].poll() is None


@pytest.mark.docker
def test_networks_and_volumes_with_its_label_are_found_and_removed(worker: str) -> None:
    for kind in ("network", "volume"):
        name = f"openface-test-{worker}"
        subprocess.run(
            ["docker", kind, "create", "--label", f"openface.worker={worker}", name], check=True, capture_output=True
        )
    assert len(remains.remains_of([worker], CONTAINERS)) == 2
    assert remains.remains_of([str(uuid.uuid4())], CONTAINERS) == []

    remains.remove_remains([worker], CONTAINERS)

    assert remains.remains_of([worker], CONTAINERS) == []
