"""The embedded PostgreSQL starts on an empty machine and survives what happens to machines."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from openface import embedded_postgres
from openface.embedded_postgres import DATABASE, EmbeddedPostgres, EmbeddedPostgresError


@pytest.fixture
def home() -> Iterator[Path]:
    # pytest's own directories are closed to others; a checkout is open, and root runs the server as somebody else.
    with tempfile.TemporaryDirectory(prefix="openface-postgres-") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory) / "with a space" / "postgres"


@pytest.fixture(scope="module")
def used_home() -> Iterator[Path]:
    """A home in which a server has run: to copy it is quicker than to make another."""
    with tempfile.TemporaryDirectory(prefix="openface-postgres-") as directory:
        Path(directory).chmod(0o755)
        server = EmbeddedPostgres(Path(directory) / "postgres", durable=False)
        server.start()
        server.stop()
        yield server.home


@pytest.fixture
def server(home: Path, used_home: Path) -> Iterator[EmbeddedPostgres]:
    home.parent.mkdir()
    subprocess.run(["cp", "-a", str(used_home), str(home)], check=True)
    (home / "port").unlink()
    server = EmbeddedPostgres(home, durable=False)
    yield server
    server.stop()


@pytest.fixture
def new_server(home: Path) -> Iterator[EmbeddedPostgres]:
    """A server that has never run."""
    server = EmbeddedPostgres(home, durable=False)
    yield server
    server.stop()


def query(url: str, sql: str) -> object:
    with psycopg.connect(url, autocommit=True, connect_timeout=10) as connection:
        cursor = connection.execute(sql)
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None


def test_it_starts_from_nothing_and_has_the_database(new_server: EmbeddedPostgres) -> None:
    url = new_server.start()

    assert query(url, "SELECT current_database()") == DATABASE
    assert new_server.url_file.read_text().strip() == url


def test_it_listens_on_loopback_only_and_wants_the_password(server: EmbeddedPostgres) -> None:
    url = server.start()

    assert query(url, "SHOW listen_addresses") == "127.0.0.1"
    with pytest.raises(psycopg.OperationalError, match="password"):
        query(url.replace(url.split(":")[2].split("@")[0], "wrong"), "SELECT 1")


def test_only_we_can_read_its_secrets(server: EmbeddedPostgres, home: Path) -> None:
    server.start()

    for name in ("url", "password"):
        assert stat.S_IMODE((home / name).stat().st_mode) == 0o600


def test_starting_it_twice_is_starting_it_once(server: EmbeddedPostgres) -> None:
    url = server.start()
    pid = server.pid()

    assert EmbeddedPostgres(server.home).start() == url
    assert server.pid() == pid


def test_two_first_starts_at_once_make_one_server(home: Path, new_server: EmbeddedPostgres) -> None:
    urls: list[str] = []
    starts = [threading.Thread(target=lambda: urls.append(EmbeddedPostgres(home, durable=False).start())) for _ in "ab"]
    for start in starts:
        start.start()
    for start in starts:
        start.join()

    assert len(urls) == 2
    assert len(set(urls)) == 1


def test_data_and_address_survive_a_stop(server: EmbeddedPostgres) -> None:
    url = server.start()
    query(url, "CREATE TABLE kept AS SELECT 42 AS answer")
    server.stop()
    assert server.pid() is None
    assert not server.url_file.exists()

    assert server.start() == url
    assert query(url, "SELECT answer FROM kept") == 42


def test_it_comes_back_after_a_kill_with_what_was_committed(server: EmbeddedPostgres) -> None:
    url = server.start()
    query(url, "CREATE TABLE kept AS SELECT 42 AS answer")
    pid = server.pid()
    assert pid is not None
    with psycopg.connect(url):  # a backend that has to notice by itself
        os.kill(pid, signal.SIGKILL)

        assert server.start() == url
    assert query(url, "SELECT answer FROM kept") == 42


def test_a_pid_file_that_names_a_stranger_does_not_stop_it(server: EmbeddedPostgres, home: Path) -> None:
    server.start()
    server.stop()
    stranger = subprocess.Popen(["sleep", "600"])
    try:
        (home / "server" / "data" / "postmaster.pid").write_text(f"{stranger.pid}\n")

        assert server.pid() is None
        assert query(server.start(), "SELECT 1") == 1
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_an_interrupted_first_start_is_begun_anew(new_server: EmbeddedPostgres, home: Path) -> None:
    for name in ("data.new", "data"):
        (home / "server" / name).mkdir(parents=True)
        (home / "server" / name / "half").write_text("")

    assert query(new_server.start(), "SELECT 1") == 1


def test_a_taken_port_is_exchanged(server: EmbeddedPostgres, home: Path, occupied_port: int) -> None:
    (home / "port").write_text(str(occupied_port))

    assert f":{occupied_port}/" not in server.start()


@pytest.fixture
def occupied_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def change_version(data: Path) -> None:
    (data / "PG_VERSION").write_text("12\n")


def lose_password(data: Path) -> None:
    (data.parent.parent / "password").unlink()


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [(change_version, "was made by PostgreSQL 12"), (lose_password, "nobody can sign in")],
)
def test_what_it_cannot_use_it_leaves_alone_and_says_so(
    server: EmbeddedPostgres, home: Path, damage: Callable[[Path], None], sentence: str
) -> None:
    server.start()
    server.stop()
    damage(home / "server" / "data")

    with pytest.raises(EmbeddedPostgresError, match=sentence):
        server.start()
    assert (home / "server" / "data" / "base").is_dir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs it as somebody else")
def test_root_runs_it_from_a_checkout_that_is_closed_to_others(
    new_server: EmbeddedPostgres, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = home.parent.parent
    installed = embedded_postgres._installed_programs()
    packages = installed.parent.parent.parent
    for part in (installed.parent, packages / "embedded_postgres.libs"):
        shutil.copytree(part, checkout / part.relative_to(packages), symlinks=True)
    checkout.chmod(0o700)
    monkeypatch.setattr(embedded_postgres, "_installed_programs", lambda: checkout / installed.relative_to(packages))
    with tempfile.TemporaryDirectory(prefix="openface-reachable-") as reachable:
        Path(reachable).chmod(0o755)
        monkeypatch.setattr(embedded_postgres, "REACHABLE_HOME", Path(reachable) / "openface")

        assert query(new_server.start(), "SELECT 1") == 1

        assert [path.name for path in home.iterdir() if path.name == "server"] == []
        new_server.stop()
