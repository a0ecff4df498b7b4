"""`manage.py up` brings up a control plane from nothing, keeps it up, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from openface.installation import Installation, free_port_base
from openface.supervisor import start_of

pytestmark = pytest.mark.timeout(400)  # whole installations, started several times

PROJECT = Path(__file__).resolve().parent.parent.parent
PATIENCE_SECONDS = 120  # a hang guard


def eventually(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE_SECONDS} s: {what}"
        time.sleep(0.05)


class Running:
    """`manage.py up` as a person starts it, and what it has printed so far."""

    def __init__(self, state: Path, port_base: int) -> None:
        self.installation = Installation(state, port_base=port_base)
        kept = ("SECRET_KEY", "OPENFACE_LEASE_KEYS", "OPENFACE_ENCRYPTION_KEYS", "DATABASE_URL")
        environment = {name: value for name, value in os.environ.items() if name not in kept}
        environment.update(OPENFACE_STATE_DIR=str(state), OPENFACE_LOG_LEVEL="INFO")
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", "up", "--port-base", str(port_base)],
            cwd=PROJECT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.said = ""
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                self.said += line

    def wait_until_up(self) -> None:
        eventually(lambda: "the portal is at" in self.said or self.process.poll() is not None, "up")
        assert self.process.poll() is None, self.said

    def pids(self) -> dict[str, int]:
        """Return who runs, as the supervisor wrote it down."""
        with contextlib.suppress(OSError, ValueError):
            record = json.loads((self.installation.state_dir / "running.json").read_text())
            return {entry["name"]: entry["pid"] for entry in record}
        return {}

    def postgres_pid(self) -> int:
        return int((self.installation.state_dir / "postgres/server/data/postmaster.pid").read_text().split("\n")[0])

    def end(self, way: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(way)
        return self.wait()

    def wait(self) -> int:
        status = self.process.wait(PATIENCE_SECONDS)
        self._listener.join(PATIENCE_SECONDS)
        return status


@pytest.fixture
def state() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="openface-up-") as directory:
        Path(directory).chmod(0o711)
        yield Path(directory)


@pytest.fixture
def running(state: Path) -> Iterator[Running]:
    running = Running(state, free_port_base())
    try:
        running.wait_until_up()
        yield running
    finally:
        if running.process.poll() is None:
            running.end(signal.SIGTERM)


def answers(url: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=10) as answer:
        return bool(answer.status == 200)
    return False


def test_it_serves_and_whatever_is_killed_comes_back_and_nothing_stays(running: Running, state: Path) -> None:
    # It serves, on two ports.
    web, data = running.installation.web_url, running.installation.data_url
    assert answers(f"{web}/healthz")
    assert answers(f"{data}/healthz")

    # A second one in the same place is refused with a sentence, and does no harm.
    second = Running(state, running.installation.port_base)
    assert second.wait() != 0
    assert re.search(r"is in use: process \d+ runs an installation from it", second.said)

    # Everything that is killed comes back.
    before = running.pids() | {"postgres": running.postgres_pid()}
    assert sorted(before) == ["data", "keeper", "postgres", "web"]
    for pid in before.values():
        os.kill(pid, signal.SIGKILL)
    for name in ("web", "data", "keeper"):
        eventually(lambda name=name: running.pids().get(name) not in (None, before[name]), f"{name} again")  # type: ignore[misc]
    eventually(lambda: "PostgreSQL has died; starting it again" in running.said, "PostgreSQL noticed")
    eventually(lambda: answers(f"{web}/healthz") and answers(f"{data}/healthz"), "both serve again")
    eventually(lambda: answers(f"{web}/"), "a page that reads the database")

    # Ctrl-C ends all of it.
    pids = [*running.pids().values(), running.postgres_pid()]
    assert running.end() == 0, running.said
    assert [pid for pid in pids if start_of(pid) is not None] == []
    assert not (state / "running.json").exists()


def test_a_killed_supervisor_leaves_nothing_that_the_next_start_cannot_use(running: Running, state: Path) -> None:
    left = running.pids()
    running.end(signal.SIGKILL)

    again = Running(state, running.installation.port_base)
    try:
        again.wait_until_up()
        assert all(f"ended {name}, left behind by an earlier run" in again.said for name in left)
        assert answers(f"{again.installation.web_url}/healthz")
    finally:
        assert again.end(signal.SIGTERM) == 0, again.said
