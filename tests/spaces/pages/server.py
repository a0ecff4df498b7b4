"""The portal as an operator starts it: daphne on a free port, on the tests' database. One for all tests of a module."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.db import connection

POOL = 8  # database connections of the portal
START_SECONDS = 60.0  # a guard: a loaded machine of two cores needs some


@dataclass(frozen=True)
class Portal:
    """A running control plane."""

    url: str
    port: int
    log: Path
    repositories: Path
    pid: int


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def serve(postgres_url: str, place: Path) -> Iterator[Portal]:
    """Run the portal until the generator is closed. The test database must have been made."""
    database_url = urlsplit(postgres_url)._replace(path=f"/{connection.settings_dict['NAME']}").geturl()
    repositories = place / "repositories"
    port = free_port()
    url = f"http://localhost:{port}"
    environment = {
        **os.environ,
        "DATABASE_URL": database_url,
        "OPENFACE_REPOSITORIES_DIR": str(repositories),
        "PUBLIC_BASE_URL": url,
        "OPENFACE_RUNTIME_ORIGIN": f"http://localhost:{free_port()}",
        "OPENFACE_DATABASE_POOL_MAX": str(POOL),
    }
    log = place / "portal.log"
    command = [sys.executable, "-m", "daphne", "-b", "127.0.0.1", "-p", str(port), "openface.asgi:application"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
    try:
        _wait_until_it_answers(f"{url}/healthz", process, log)
        yield Portal(url, port, log, repositories, process.pid)
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_it_answers(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    pytest.fail(f"the portal does not answer:\n{log.read_text(errors='replace')[-4000:]}")
