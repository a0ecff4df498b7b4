"""Two remote machines behind lines of their own, for tests in which they, or the control plane, go away."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import requests

from openface.supervisor import start_of
from tests.e2e.relay import Relay
from tests.e2e.world import APP, Portal, World, eventually

WANDERER = "owner/wanderer"
OTHER = {"east": "west", "west": "east"}
README = "---\ntitle: {name}\nsdk: docker\napp_file: app.py\n---\n"
HELLO = APP.format(boot=0, stop=0)


@dataclass
class Fleet:
    """Two remote GPU machines, each behind a line of its own."""

    world: World
    owner: Portal
    operator: Portal
    lines: dict[str, Relay]
    began: int = 0
    """Jobs up to this number are of earlier tests."""

    @contextmanager
    def only(self, name: str) -> Iterator[None]:
        """New jobs go to this machine only."""
        self.world.stand(OTHER[name], "drain")
        yield
        self.world.stand(OTHER[name], "resume")

    def start(self, name: str, *, topics: str = "space,gpu", **files: str) -> str:
        """A Space with these files beside a small app, started."""
        full = {"README.md": README.format(name=name), "app.py": HELLO, **files}
        space = self.world.space(name, full, topics=topics)
        self.owner.act(space, "start")
        return space

    def run(self) -> tuple[str, str, str]:
        """The Space that most tests use, running: its name, its worker, and what it answers."""
        self.owner.act(WANDERER, "start")
        self.world.wait_for_state(WANDERER, "running")
        return WANDERER, self.home(WANDERER), self.hello(WANDERER)

    def wait_for_build(self, space: str) -> None:
        """Until it is at the step that waits for the test; what came before needs the network."""
        eventually(lambda: "Processing ./slow" in self.log_of(space, "build"), f"{space} is being built")

    def stop(self, space: str) -> None:
        self.owner.act(space, "stop")
        self.world.wait_for_state(space, "completed")
        eventually(lambda: all(not self.world.apps_of(name) for name in self.lines), "no process is left")
        eventually(lambda: self.uncleared() == 0, "the workers have said that nothing is left")

    def hello(self, space: str) -> str:
        """What the app answers to a visitor."""
        answers: list[str] = []

        def answered() -> bool:
            answers[:] = [text for text in [self.visit(space)] if text]
            return bool(answers)

        eventually(answered, f"{space} answers", otherwise=lambda: self.world.history(space))
        return answers[0]

    def visit(self, space: str) -> str | None:
        """The app's own answer to one visit, None where it is not served."""
        answer = requests.get(f"{self.world.data}/run/{space}/", timeout=10, allow_redirects=False)
        return answer.text if answer.status_code == 200 and answer.text.startswith("hello") else None

    def home(self, space: str) -> str:
        """The worker that had the newest lease of the Space."""
        return str(self.leases(space)[-1][1])

    def leases(self, space: str) -> list[tuple[Any, ...]]:
        """(lease, worker, released, cleared, attempts of the job), the oldest first."""
        return self.world.rows(
            """SELECT l.id, w.name, l.released_at IS NOT NULL, l.cleared_at IS NOT NULL, j.attempts FROM jobs_lease l
               JOIN workers_worker w ON w.id = l.worker_id JOIN jobs_job j ON j.id = l.job_id
               WHERE j.repo = %s AND j.seq > %s ORDER BY l.acquired_at""",
            space.split("/")[1],
            self.began,
        )

    def events(self, space: str) -> list[str]:
        rows = self.world.rows(
            """SELECT e.event FROM jobs_jobevent e JOIN jobs_job j ON j.id = e.job_id
               WHERE j.repo = %s AND j.seq > %s AND NOT e.ignored ORDER BY e.id""",
            space.split("/")[1],
            self.began,
        )
        return [event for (event,) in rows]

    def reserved(self, lease: Any) -> int:
        """Reservations of a lease that still count."""
        sql = "SELECT count(*) FROM jobs_reservation WHERE lease_id = %s AND cleared_at IS NULL"
        return int(self.world.rows(sql, lease)[0][0])

    def uncleared(self) -> int:
        return int(self.world.rows("SELECT count(*) FROM jobs_lease WHERE cleared_at IS NULL")[0][0])

    def directory(self, name: str) -> Path:
        return self.world.machines[name].directory(self.world.installation)

    def journal(self, name: str, lease: Any) -> dict[str, Any]:
        """What the worker has written down of a lease; empty where there is nothing (any more)."""
        try:
            found: dict[str, Any] = json.loads((self.directory(name) / "jobs" / f"{lease}.json").read_text())
        except (OSError, ValueError):
            return {}
        return found

    def log_of(self, space: str, stream: str) -> str:
        rows = self.world.rows(
            """SELECT c.text FROM jobs_logchunk c JOIN jobs_lease l ON l.id = c.lease_id JOIN jobs_job j
               ON j.id = l.job_id WHERE j.repo = %s AND c.stream = %s ORDER BY l.acquired_at, c."offset" """,
            space.split("/")[1],
            stream,
        )
        return "".join(text for (text,) in rows)


class Visitor:
    """Asks a Space again and again; remembers each change of what answers."""

    def __init__(self, fleet: Fleet, space: str) -> None:
        self.saw: list[str] = []
        self._over = threading.Event()
        self._fleet, self._space = fleet, space
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Visitor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.05):
            try:
                text = self._fleet.visit(self._space)
            except requests.RequestException:
                continue
            if text and self.saw[-1:] != [text]:
                self.saw.append(text)


class Backup:
    """A copy of the live database, and its way back. Everybody loses the connection for a moment."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._live = parts.path.lstrip("/")
        self._admin = parts._replace(path="/template1").geturl()

    def make(self) -> None:
        with psycopg.connect(self._admin, autocommit=True) as connection:
            self._shut(connection)
            connection.execute(f'CREATE DATABASE "copy" TEMPLATE "{self._live}"')
            self._open(connection)

    def restore(self) -> None:
        with psycopg.connect(self._admin, autocommit=True) as connection:
            self._shut(connection)
            connection.execute(f'DROP DATABASE "{self._live}" WITH (FORCE)')
            connection.execute(f'ALTER DATABASE "copy" RENAME TO "{self._live}"')
            self._open(connection)

    def _shut(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute(f'ALTER DATABASE "{self._live}" ALLOW_CONNECTIONS false')
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [self._live])
        gone = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"
        eventually(lambda: connection.execute(gone, [self._live]).fetchone() == (0,), "everybody has let go")

    def _open(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute(f'ALTER DATABASE "{self._live}" ALLOW_CONNECTIONS true')


def alive(apps: set[str]) -> set[str]:
    """Those of these processes that still run; their worker may have forgotten itself."""
    return {app for app in apps if start_of(int(app.split(":")[0])) == app.split(":", 1)[1]}
