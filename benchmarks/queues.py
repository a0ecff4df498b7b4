"""Control planes with lines of a given length: a database and a web process each, on the installation's PostgreSQL."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

import psycopg
import requests

from benchmarks.claimant import Claimant
from tests.e2e.world import World, eventually

WORKERS = 40  # tokens kept ready, remote and local
# 68 classes: one fits, the others need larger cards than two of 24 GB, more of them, or what the worker does not have.
_GPU_CLASS = "('gpu', 1, 11444, false, '{}'::varchar[])"
_CPU_CLASS = "('cpu', 0, NULL, false, '{}'::varchar[])"
_UNFIT = [
    *(f"('gpu', 1, {30_000 + n}, false, '{{}}'::varchar[])" for n in range(23)),
    *(f"('gpu', {3 + n}, NULL, true, '{{}}'::varchar[])" for n in range(22)),
    *(f"('gpu', 1, NULL, true, '{{feature-{n}}}'::varchar[])" for n in range(22)),
]
_FURNISH = f"""
import json
from datetime import timedelta
from jobs.models import Job, Requirement
from spaces.models import Space
from workers.enrollment import issue_token
space = Space.objects.create(repository_id="pattern", owner="bench", name="pattern", visibility="public",
                             head_revision="0" * 40)
needs = Requirement.objects.create(kind="cpu", features=["pattern"])
Job.objects.create(space=space, repository_id="pattern", owner="bench", repo="pattern", revision="0" * 40,
                   requirement=needs, state="completed")
hour = timedelta(hours=1)
tokens = dict(
    remote=[issue_token(f"remote{{n}}", life=hour).token for n in range({WORKERS})],
    local=[issue_token(f"local{{n}}", life=hour, local=True).token for n in range({WORKERS})],
)
print(json.dumps(tokens))
"""
# Rows like the pattern's, whatever columns it has. (LATERAL: written as (f(…)).*, the function runs once per column.)
_SPACES = """
    INSERT INTO spaces_space
    SELECT made.* FROM spaces_space pattern, generate_series(1, %(length)s) n, LATERAL jsonb_populate_record(
        pattern, jsonb_build_object('id', 1000 + n, 'name', 'space' || n, 'repository_id', 'r' || n)) made
    WHERE pattern.name = 'pattern'
"""
_JOBS = """
    INSERT INTO jobs_job
    SELECT made.* FROM jobs_job pattern, generate_series(1, %(length)s) n, LATERAL jsonb_populate_record(
        pattern, jsonb_build_object(
            'id', gen_random_uuid(), 'seq', 1000 + n, 'space_id', 1000 + n, 'repo', 'space' || n, 'state', 'queued',
            'requirement_id', CASE WHEN n %% %(every)s = 0 THEN %(fitting)s::bigint
                              ELSE (%(unfit)s::bigint[])[1 + n %% %(classes)s] END)) made
    WHERE pattern.repo = 'pattern'
"""


@dataclass(frozen=True)
class Queue:
    """One control plane and its line."""

    url: str
    database_url: str
    tokens: dict[str, list[str]]
    pid: int

    def worker(self, number: int = 0, *, cpu: int = 0) -> Claimant:
        """Enroll a worker; one that is asked for CPU jobs is local."""
        kind = "local" if cpu else "remote"
        worker = Claimant(self.url, self.tokens[kind][number], f"{kind}{number}", cpu=cpu)
        with psycopg.connect(self.database_url) as database:  # no data plane looks at gateways here
            database.execute(
                "UPDATE workers_worker SET gateway_status = 'ok', gateway_url = 'http://127.0.0.1:1' WHERE id = %s",
                (worker.id,),
            )
        return worker


class Queues:
    """Makes them from one migrated and furnished database."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._pattern = f"pattern_{uuid.uuid4().hex[:8]}"
        self._sql(f"CREATE DATABASE {self._pattern}")
        self._manage("prepare_database")
        self._tokens = json.loads(self._manage("shell", "-v", "0", "-c", _FURNISH).strip().splitlines()[-1])

    @contextmanager
    def queue(self, length: int, *, fitting: Literal["gpu", "cpu"], every: int) -> Iterator[Queue]:
        """A line of this length, in which every so many-th job fits a worker with idle GPUs, or one for CPU jobs."""
        name = f"line_{uuid.uuid4().hex[:8]}"
        self._sql(f"CREATE DATABASE {name} TEMPLATE {self._pattern}")
        url = self._url(name)
        with psycopg.connect(url, autocommit=True) as database:
            unfit = _new_classes(database, _UNFIT)
            ours = _new_classes(database, [_GPU_CLASS if fitting == "gpu" else _CPU_CLASS])
            facts = {"unfit": unfit, "classes": len(unfit), "fitting": ours[0], "every": every, "length": length}
            database.execute(_SPACES, facts)
            database.execute(_JOBS, facts)
            database.execute("VACUUM ANALYZE")
        try:
            with self._web(url) as (web, pid):
                yield Queue(web, url, self._tokens, pid)
        finally:
            self._sql(f"DROP DATABASE {name} WITH (FORCE)")

    @contextmanager
    def _web(self, database_url: str) -> Iterator[tuple[str, int]]:
        port = _free_port()
        environment = {**os.environ, **self._world.installation.environment(), "DATABASE_URL": database_url}
        command = ["-m", "daphne", "-b", "127.0.0.1", "-p", str(port), "openface.asgi:application"]
        log = self._world.directory / f"web{port}.log"
        with log.open("wb") as output:
            web = subprocess.Popen([sys.executable, *command], env=environment, stdout=output, stderr=output)
        try:
            url = f"http://127.0.0.1:{port}"
            eventually(lambda: _answers(url), "the web process answers", seconds=180, otherwise=log.read_text)
            yield url, web.pid
        finally:
            web.terminate()
            web.wait(30)

    def _sql(self, statement: str) -> None:
        with psycopg.connect(self._world.database_url, autocommit=True) as database:
            database.execute(statement)

    def _url(self, name: str) -> str:
        return urlsplit(self._world.database_url)._replace(path=f"/{name}").geturl()

    def _manage(self, *arguments: str) -> str:
        environment = {
            **os.environ,
            **self._world.installation.environment(),
            "DATABASE_URL": self._url(self._pattern),
            "OPENFACE_DATABASE_POOL": "false",
        }
        command = [sys.executable, "manage.py", *arguments]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


def _new_classes(database: psycopg.Connection, classes: list[str]) -> list[int]:
    """The ids of these classes of needs, made now."""
    insert = "INSERT INTO jobs_requirement (kind, gpu_count, vram_mib, exclusive, features) VALUES {} RETURNING id"
    return [row[0] for row in database.execute(insert.format(", ".join(classes)).encode())]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _answers(url: str) -> bool:
    with requests.Session() as session:
        session.trust_env = False
        return session.get(f"{url}/healthz", timeout=20).ok
