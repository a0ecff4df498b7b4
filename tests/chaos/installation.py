"""PostgreSQL for schedules: one server per run, one database per process, migrated once and then copied."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from openface.embedded_postgres import EmbeddedPostgres

PROJECT = Path(__file__).parents[2]
SECONDS = 60.0  # a guard against hanging


@contextmanager
def server() -> Iterator[str]:
    """A PostgreSQL of our own; yields the address of its first database."""
    with tempfile.TemporaryDirectory(prefix="openface-chaos-") as home:
        Path(home).chmod(0o755)
        # Tens of thousands of tiny statements: nobody reads what the server says of each of them meanwhile.
        quiet = {"jit": "off", "track_activities": "off", "update_process_title": "off"}
        settings = {"synchronous_commit": "off", "autovacuum_naptime": "5s", **quiet}
        postgres = EmbeddedPostgres(Path(home) / "postgres", durable=False, settings=settings)
        url = postgres.start()
        try:
            yield url
        finally:
            postgres.stop()


@contextmanager
def web_process(database_url: str, log: Path) -> Iterator[int]:
    """The control plane's web process on this database; yields its port. Raises AssertionError where it complains."""
    port = _free_port()
    environment = {
        **os.environ,
        "DATABASE_URL": database_url,
        "OPENFACE_WORKER_RATE": "100000/100000",
        "OPENFACE_HEARTBEAT_RATE": "100000/100000",
    }
    daphne = [sys.executable, "-m", "daphne", "-v", "0", "-b", "127.0.0.1", "-p", str(port)]
    command = [*daphne, "openface.asgi:application"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=PROJECT, env=environment, stdout=output, stderr=subprocess.STDOUT)
    try:
        _wait_until_it_answers(port, process, log)
        yield port
    finally:
        process.terminate()
        process.wait(SECONDS)
    assert "Traceback" not in log.read_text(), log.read_text()[-4000:]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_it_answers(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=SECONDS) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.05)
    raise AssertionError(f"the web process does not start: {log.read_text()}")


def named(url: str, name: str) -> str:
    return urlsplit(url)._replace(path=f"/{name}").geturl()


def copy_database(url: str, template: str, name: str) -> str:
    """Copy a database that nobody is connected to; return the copy's address."""
    with psycopg.connect(named(url, "postgres"), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
    return named(url, name)
