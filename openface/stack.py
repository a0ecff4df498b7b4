"""The control plane on one machine: PostgreSQL, web, data and keeper, started in order and ended in order."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import IO, TextIO

from openface.embedded_postgres import EmbeddedPostgres, EmbeddedPostgresError
from openface.installation import LOOPBACK, Installation, InstallationError
from openface.supervisor import Program, Supervisor

PROJECT = Path(__file__).resolve().parent.parent
_ANSWER_SECONDS = 120.0  # from the start of a server to its first answer
_WATCH_SECONDS = 0.5  # how soon a dead PostgreSQL is noticed


class Stack:
    """The control plane of one installation. `up` leaves it answering; `down` leaves nothing of it.

    The database is ours only where DATABASE_URL names none.
    """

    def __init__(self, installation: Installation, *, output: TextIO | None = None) -> None:
        self.installation = installation
        self._output = output
        self.stop_wanted = threading.Event()  # somebody wants us to end: no waiting for servers any more
        self.hurried = threading.Event()  # and wants it at once: no waiting for anybody
        self.supervisor: Supervisor
        self._lock: IO[str] | None = None
        self._postgres = (
            None
            if os.environ.get("DATABASE_URL") or os.environ.get("DATABASE_URL_FILE")
            else EmbeddedPostgres(installation.state_dir / "postgres")
        )
        self._leaving = threading.Event()
        self._watcher = threading.Thread(target=self._watch_postgres, name="watch postgres", daemon=True)

    def up(self) -> None:
        """Start everything. Raises InstallationError, or EmbeddedPostgresError, with a sentence for a person.

        Call `down` afterwards in any case: what was started before an error runs.
        """
        self.installation.prepare()
        self._take()
        # Ends what an earlier run left behind, which may be what holds our ports.
        self.supervisor = Supervisor(self.installation.state_dir / "running.json", output=self._output)
        self.installation.check_ports()
        if self._postgres:
            self.supervisor.say("starting PostgreSQL (embedded)")
            self._postgres.start()
            self._watcher.start()
        self.manage("prepare_database")
        for program in (self._web(), self._data(), self._keeper()):
            self.supervisor.start(program)
        self.wait_for_answer("web", f"{self.installation.web_url}/healthz")
        self.wait_for_answer("data", f"{self.installation.data_url}/healthz")

    def down(self) -> None:
        """Stop all programs, workers first because they were started last, then the database."""
        self._leaving.set()
        if hasattr(self, "supervisor"):
            self.supervisor.stop_all()
            if self._watcher.is_alive():
                self._watcher.join()
            if self._postgres:
                self._postgres.stop()
        if self._lock:
            self._lock.close()

    def manage(self, *arguments: str, timeout_seconds: float = 300) -> str:
        """Run one of our own commands in this installation and return its standard output.

        What it says on standard error is shown. Raises InstallationError when it fails.
        """
        deadline = time.monotonic() + timeout_seconds
        command = subprocess.Popen(
            [sys.executable, str(PROJECT / "manage.py"), *arguments],
            env={**os.environ, **self.installation.environment(), "OPENFACE_DATABASE_POOL": "false"},
            cwd=PROJECT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,  # Ctrl-C is for us to act upon
        )
        while True:
            try:
                output, complaints = command.communicate(timeout=0.2)
                break
            except subprocess.TimeoutExpired:
                if self.hurried.is_set() or time.monotonic() > deadline:
                    command.kill()
        for line in complaints.splitlines():
            self.supervisor.say(line)
        if command.returncode != 0:
            raise InstallationError(f"`manage.py {arguments[0]}` ended with status {command.returncode}, see above.")
        return output

    def wait_for_answer(self, name: str, url: str) -> None:
        """Wait until this program answers HTTP at the URL, whatever it answers short of a server error."""
        deadline = time.monotonic() + _ANSWER_SECONDS
        while not _answers(url):
            if time.monotonic() > deadline:
                raise InstallationError(f"{name} does not answer at {url} after {_ANSWER_SECONDS:g} s; see its lines.")
            if self.stop_wanted.wait(0.1):
                raise InstallationError(f"{name} was stopped before it answered.")

    def stop_on_signals(self) -> None:
        """Let the first Ctrl-C (or SIGTERM, or closed terminal) set `stop_wanted`, and the second end all at once."""

        def act() -> None:
            if self.stop_wanted.is_set() and hasattr(self, "supervisor"):
                self.hurried.set()
                self.supervisor.hurry()
            self.stop_wanted.set()

        reader, writer = os.pipe()

        def listen() -> None:
            while os.read(reader, 1):
                act()

        def handle(number: int, frame: object) -> None:
            # Nothing else here: the code that the signal interrupted may hold any lock, also that of starting a thread.
            os.write(writer, b"!")

        threading.Thread(target=listen, name="stop-signals", daemon=True).start()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, handle)

    # --- the programs ----------------------------------------------------------------------------------------------

    def _program(self, name: str, *command: str, listens: tuple[str, int] | None = None) -> Program:
        return Program(
            name=name,
            command=[sys.executable, *command],
            listens=listens,
            environment=self.installation.environment(),
            directory=PROJECT,
        )

    def _web(self) -> Program:
        port = self.installation.web_port
        command = ("-m", "daphne", "-v", "0", "--no-server-name", "--fd", "{fd}", "openface.asgi:application")
        return self._program("web", *command, listens=(LOOPBACK, port))

    def _data(self) -> Program:
        port = self.installation.data_port
        return self._program("data", "-m", "openface.data_server", "--fd", "{fd}", listens=(LOOPBACK, port))

    def _keeper(self) -> Program:
        return self._program("keeper", "manage.py", "keeper")

    # --- one at a time, and the database kept alive ----------------------------------------------------------------

    def _take(self) -> None:
        """Make this state directory ours until `down`; two supervisors would end each other's programs."""
        # Not closed here: the lock lives as long as the file is open.
        self._lock = (self.installation.state_dir / "lock").open("a+", encoding="utf-8")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.seek(0)
            owner = self._lock.read().strip() or "unknown"
            self._lock.close()
            self._lock = None
            raise InstallationError(
                f"{self.installation.state_dir} is in use: process {owner} runs an installation from it. "
                "Stop that one first, or give OPENFACE_STATE_DIR another directory."
            ) from None
        self._lock.truncate(0)
        self._lock.write(str(os.getpid()))
        self._lock.flush()

    def _watch_postgres(self) -> None:
        assert self._postgres is not None
        pause = _WATCH_SECONDS
        while not self._leaving.wait(pause):
            if self._postgres.pid() is not None:
                pause = _WATCH_SECONDS
                continue
            self.supervisor.say("PostgreSQL has died; starting it again")
            try:
                self._postgres.start()
            except (EmbeddedPostgresError, OSError) as error:
                pause = min(pause * 2, 30)
                self.supervisor.say(f"PostgreSQL does not start: {error}; next try in {pause:g} s")


def _answers(url: str) -> bool:
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=5):
            return True
    except urllib.error.HTTPError as error:
        with suppress(OSError):
            error.close()
        return error.code < 500
    except OSError:
        return False
