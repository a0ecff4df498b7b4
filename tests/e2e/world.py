"""A whole installation on this machine, seen from outside: processes, HTTP, and the database's rows to check against.

Nothing of the product is imported but what starts it: the tests talk as a browser, a person at a shell or a machine
would. Workers use the process executor; suites that need a container engine say so.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import psycopg
import requests

from openface.demo import remains
from openface.demo.engine import Engine
from openface.demo.machines import Machine
from openface.installation import Installation, free_port_base
from openface.stack import Stack
from openface.supervisor import Program

HEARTBEAT_SECONDS = 0.5
STALE_SECONDS = 4.0
SCALED = {
    "OPENFACE_GPU_WORKERS_ENABLED": "true",
    "OPENFACE_ALLOW_SIMULATED_GPUS": "true",
    "OPENFACE_GPU_WORKER_HEARTBEAT_SECONDS": str(HEARTBEAT_SECONDS),
    "OPENFACE_GPU_WORKER_STALE_SECONDS": str(STALE_SECONDS),
    "OPENFACE_GPU_WORKER_LEASE_SECONDS": "5",
    "OPENFACE_GPU_WORKER_POLL_SECONDS": "1",
    "OPENFACE_KEEPER_SECONDS": "0.5",
    "OPENFACE_ALIVE_SECONDS": "0.5",
    "OPENFACE_STOP_GRACE_SECONDS": "4",
}
PATIENCE_SECONDS = 60.0  # a guard against hanging, on a machine that is busy with other things
LOOK_SECONDS = 0.02
PROCESSES = Engine("process", "", "Spaces run as plain processes")
PEOPLE = ("owner", "reader", "stranger")
PASSWORD = "correct horse battery staple"

APP = """
import http.server, os, signal, sys, time
BOOT_SECONDS, STOP_SECONDS = {boot}, {stop}
if STOP_SECONDS:
    def slowly(signum, frame):
        time.sleep(STOP_SECONDS)
        sys.exit(0)
    signal.signal(signal.SIGTERM, slowly)
print("booting", flush=True)
time.sleep(BOOT_SECONDS)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = ("hello from pid %d" % os.getpid()).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass
print("listening", flush=True)
http.server.ThreadingHTTPServer(("", int(os.environ["PORT"])), Handler).serve_forever()
"""


@dataclass
class Portal:
    """One person's browser, without a screen."""

    world: World
    session: requests.Session
    token: str = ""

    def sign_in(self, name: str) -> None:
        page = self.session.get(f"{self.world.web}/login/")
        answer = self.session.post(
            f"{self.world.web}/login/",
            data={"username": name, "password": PASSWORD, "csrfmiddlewaretoken": _token(page.text)},
            headers={"Referer": f"{self.world.web}/login/"},
        )
        assert answer.status_code == 200 and "/login/" not in answer.url, f"{name} could not sign in"

    def get(self, path: str, **options: Any) -> requests.Response:
        return self.session.get(self.world.web + path, timeout=20, **options)

    def post(self, path: str) -> requests.Response:
        """Post an empty form with this session's token."""
        return self.send(self.prepare(path))

    def prepare(self, path: str, **fields: str) -> requests.PreparedRequest:
        """A form that is filled in and not sent yet."""
        data = {"csrfmiddlewaretoken": _token(self.get("/login/").text), **fields}
        headers = {"Referer": self.world.web + "/"}
        return self.session.prepare_request(requests.Request("POST", self.world.web + path, headers, data=data))

    def send(self, form: requests.PreparedRequest) -> requests.Response:
        return self.session.send(form, timeout=20, allow_redirects=False)

    def act(self, space: str, act: str) -> requests.Response:
        """Press Start, Stop or Restart."""
        answer = self.post(f"/spaces/{space}/{act}")
        assert answer.status_code in (302, 303), f"{act} {space}: {answer.status_code} {answer.text[:500]}"
        return answer

    def status(self, space: str) -> dict[str, Any]:
        answer = self.get(f"/spaces/{space}/status.json")
        assert answer.status_code == 200, f"{space}: {answer.status_code}"
        status: dict[str, Any] = answer.json()
        return status


@dataclass(frozen=True)
class Oddities:
    """What sets a machine apart from the others: settings, a wrong clock, a container engine."""

    environment: Mapping[str, str] = field(default_factory=dict)
    clock_off_seconds: float = 0
    engine: Engine = PROCESSES


def _token(html: str) -> str:
    found = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', html)
    assert found, "the page has no form"
    return found.group(1)


class World:
    """One installation. `up` and `down` bracket its life; everything else is what people and machines do with it."""

    def __init__(self, directory: Path, *, overrides: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self._log: IO[str] = (directory / "log").open("w", encoding="utf-8")
        state = directory / "state"
        self.installation = Installation(state, port_base=free_port_base(), overrides={**SCALED, **(overrides or {})})
        self.stack = Stack(self.installation, output=self._log)
        self.web = self.installation.public_url
        self.data = f"http://localhost:{self.installation.data_port}"
        self.machines: dict[str, Machine] = {}
        self._oddities: dict[str, Oddities] = {}
        self._portals: dict[str, Portal] = {}

    def up(self) -> None:
        self.stack.up()
        people = f"[User.objects.create_user(n, password={PASSWORD!r}) for n in {PEOPLE!r}]"
        staff = f"User.objects.create_superuser('operator', password={PASSWORD!r})"
        self.manage("shell", "-c", f"from django.contrib.auth.models import User\n{people}\n{staff}")

    def down(self) -> None:
        self.stack.down()
        ids = [self.worker_id(name) for name in self.machines]
        remains.remove_remains([found for found in ids if found], PROCESSES)
        for name, odd in self._oddities.items():
            if odd.engine.has_containers and (worker := self.worker_id(name)):
                remains.remove_remains([worker], odd.engine)
                remains.remove_images([worker], odd.engine)
        self._log.close()

    def manage(self, *arguments: str) -> str:
        return self.stack.manage(*arguments)

    # --- Spaces ----------------------------------------------------------------------------------------------------

    def space(
        self,
        name: str,
        files: Mapping[str, str | bytes] | None = None,
        *,
        topics: str = "space,cpu",
        visibility: str = "public",
        boot: float = 0,
        stop: float = 0,
    ) -> str:
        """Import a repository of `owner`; return its full name. By default a small app with these delays (seconds)."""
        source = self.directory / "sources" / name
        source.mkdir(parents=True, exist_ok=True)
        if files is None:
            readme = f"---\ntitle: {name}\nsdk: docker\napp_file: app.py\n---\n# {name}\n"
            files = {"README.md": readme, "app.py": APP.format(boot=boot, stop=stop)}
        for file, text in files.items():
            target = source / file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(text if isinstance(text, bytes) else text.encode())
            target.chmod(0o755 if isinstance(text, bytes) else 0o644)  # bytes are programs
        self.manage("import_space", str(source), f"owner/{name}", "--topics", topics, "--visibility", visibility)
        return f"owner/{name}"

    # --- machines --------------------------------------------------------------------------------------------------

    def machine(
        self, name: str, *, local: bool = True, gpus: int = 0, cpus: int = 10, odd: Oddities | None = None
    ) -> Machine:
        """Enroll and start a worker on this machine."""
        self._oddities[name] = odd or Oddities()
        machine = Machine(name=name, number=len(self.machines), local=local, max_gpu_jobs=gpus, max_cpu_jobs=cpus)
        self.machines[name] = machine
        machine.directory(self.installation).mkdir(mode=0o700, parents=True)
        options = ["--local"] if local else []
        gateway = machine.gateway_url(self.installation)
        token = self.manage("issue_enrollment_token", name, "--gateway", gateway, *options).strip()
        machine.token_file(self.installation).write_text(token, encoding="utf-8")
        self.stack.supervisor.start(self.program(machine))
        eventually(lambda: self.worker_id(name) is not None, f"{name} has enrolled")
        return machine

    def stand(self, name: str, act: str) -> None:
        """An operator drains, resumes, disables, enables or revokes a worker."""
        operator = self.portal("operator")
        answer = operator.session.post(
            f"{self.web}/api/v1/fleet/workers/{name}/{act}",
            headers={"X-CSRFToken": _token(operator.get("/login/").text), "Referer": self.web + "/"},
            timeout=20,
        )
        assert answer.status_code == 200, answer.text

    def program(self, machine: Machine) -> Program:
        odd = self._oddities[machine.name]
        program = machine.program(self.installation, odd.engine)
        command = list(program.command)
        if odd.clock_off_seconds:
            command[1:] = ["-m", "tests.e2e.wrong_clock", str(odd.clock_off_seconds), "run"]
        return replace(program, command=command, environment={**program.environment, **odd.environment})

    def worker_id(self, name: str) -> str | None:
        return remains.worker_id(self.machines[name].directory(self.installation))

    def apps_of(self, name: str) -> set[str]:
        """What the kernel says this worker runs."""
        worker = self.worker_id(name)
        return remains.apps_of(worker, self._oddities[name].engine) if worker else set()

    def kill(self, program: str) -> None:
        """kill -9; the supervisor starts it again, as systemd or compose would."""
        pid = self.stack.supervisor.pid(program)
        assert pid is not None, f"{program} does not run"
        os.kill(pid, signal.SIGKILL)

    def kill_postgres(self) -> None:
        postgres = self.stack._postgres
        assert postgres is not None
        pid = postgres.pid()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    # --- looking ---------------------------------------------------------------------------------------------------

    def portal(self, person: str | None = None) -> Portal:
        """A browser: this person's own, signed in once, or a fresh one of nobody."""
        if person in self._portals:
            return self._portals[person]
        session = requests.Session()
        session.trust_env = False
        portal = Portal(self, session)
        if person:
            portal.sign_in(person)
            self._portals[person] = portal
        return portal

    def rows(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """What the database says; the state to check against, never the way to act."""
        with psycopg.connect(self.database_url, connect_timeout=5) as connection:
            return list(connection.execute(sql, parameters))

    @property
    def database_url(self) -> str:
        return (self.installation.state_dir / "postgres" / "url").read_text(encoding="utf-8").strip()

    def state(self, space: str) -> str | None:
        """The state of the Space's newest job."""
        owner, name = space.split("/")
        rows = self.rows(
            "SELECT state FROM jobs_job WHERE owner = %s AND repo = %s ORDER BY seq DESC LIMIT 1", owner, name
        )
        return rows[0][0] if rows else None

    def wait_for_state(self, space: str, *states: str, seconds: float = PATIENCE_SECONDS) -> str:
        """Wait until the newest job is in one of these states."""

        def there() -> bool:
            return self.state(space) in states

        eventually(there, f"{space} is {' or '.join(states)}", seconds=seconds, otherwise=lambda: self.history(space))
        return str(self.state(space))

    def history(self, space: str) -> str:
        """The Space's jobs and events, for a failed test's message."""
        owner, name = space.split("/")
        events = self.rows(
            """SELECT j.state, e.event, e.from_state, e.to_state, e.ignored, e.reason FROM jobs_jobevent e
               JOIN jobs_job j ON j.id = e.job_id WHERE j.owner = %s AND j.repo = %s ORDER BY e.id""",
            owner,
            name,
        )
        return json.dumps(events, default=str, indent=1)

    def log_tail(self, lines: int = 60) -> str:
        """The last that the programs said."""
        self._log.flush()
        return "\n".join((self.directory / "log").read_text(errors="replace").splitlines()[-lines:])


def eventually(
    condition: Callable[[], bool],
    promise: str,
    *,
    seconds: float = PATIENCE_SECONDS,
    otherwise: Callable[[], str] | None = None,
) -> None:
    """Look until it is so. A database that is just restarting counts as "not yet"."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if condition():
                return
        except (psycopg.OperationalError, requests.ConnectionError):
            pass
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {promise}\n{otherwise() if otherwise else ''}")
        time.sleep(LOOK_SECONDS)


@contextmanager
def told_on_failure(world: World) -> Any:
    """Show what the programs said when the block fails."""
    try:
        yield
    except BaseException:
        print(world.log_tail(), file=sys.stderr)
        raise
