"""What stands around the proxies while they are measured: cheap apps, a worker's gateway, a bare proxy, and nginx.

The data plane is the installation's own. Its Spaces run nowhere: rows of the database say that they do, at "gateways"
that are an app itself (one hop), or a gateway of ours in front of that app (the chain).
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.measurement import cpu_seconds
from tests.e2e.world import World, eventually

BIG_MIB = 10
ROUNDS = 5
WARM_SECONDS = 0.5
BEAT_SECONDS = 10.0  # the workers that only rows know of are "heard" so often
_NGINX = """
daemon off; master_process off; worker_processes 1; pid {directory}/pid; error_log {directory}/error.log;
events {{ worker_connections 8192; }}
http {{
  access_log off; sendfile on; tcp_nopush on; tcp_nodelay on; keepalive_requests 100000000; client_max_body_size 0;
  client_body_temp_path {directory}/c; proxy_temp_path {directory}/p; fastcgi_temp_path {directory}/f;
  uwsgi_temp_path {directory}/u; scgi_temp_path {directory}/s;
  types {{ }} default_type application/octet-stream;
  {rest}
}}
"""
_FILES = """
  server {{ listen 127.0.0.1:{port} backlog=2048; root {root};
    location ~ ^(?:/lease/[^/]+)?(/.*)$ {{ try_files $1 =404; }} }}
"""
_PROXY = """
  upstream app {{ server 127.0.0.1:{to}; keepalive 64; keepalive_requests 100000000; }}
  map $http_upgrade $how {{ default upgrade; '' ''; }}
  server {{ listen 127.0.0.1:{port} backlog=2048; location / {{
    proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Host $http_host;
    proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $how; proxy_read_timeout 1h;
    proxy_buffers 16 64k; proxy_buffer_size 64k; proxy_busy_buffers_size 128k; proxy_max_temp_file_size 0;
    proxy_request_buffering off;
  }} }}
"""
_FURNISH = """
import hashlib, json, sys
from datetime import timedelta
from django.utils import timezone
from jobs.models import Lease
from jobs.tokens import newest_key_id, runtime_token
from spaces.models import Space
from tests.factories import JobFactory, WorkerFactory
made, day, wanted = {}, timedelta(days=1), json.loads(sys.stdin.read())
for name, url in wanted["gateways"].items():
    worker = WorkerFactory.create(name=f"bench-{name}-{wanted['mark']}", gateway_url=url)
    space = Space.objects.get(owner="owner", name=f"{name}-{wanted['mark']}")
    job = JobFactory.create(space=space, state="running", worker=worker, first_ran_at=timezone.now(), attempts=1)
    lease = Lease.objects.create(job=job, worker=worker, attempt=1, session=1, idempotency_key=str(job.pk),
                                 key_id=newest_key_id(), expires_at=timezone.now() + day)
    made[name] = [str(lease.pk), hashlib.sha256(runtime_token(lease).encode()).hexdigest()]
print(json.dumps(made))
"""


@dataclass(frozen=True)
class Way:
    """One way to an app: where to ask, and which processes carry it."""

    port: int
    path: str
    pids: tuple[int, ...] = ()

    def cpu(self) -> float:
        """CPU seconds of what carries it, so far."""
        return sum(cpu_seconds(pid) for pid in self.pids)


class Missing(Exception):
    """A program that is measured against is not installed here."""


@dataclass(frozen=True)
class Stage:
    """The ways to the same files and to the same echo."""

    small: dict[str, Way]
    big: dict[str, Way]
    echo: dict[str, Way]
    raw: dict[str, Way]  # of the raw app over HTTP: "…/bytes/N", and uploads
    data_pid: int
    gateway_pid: int


@contextmanager
def stage(world: World) -> Iterator[Stage]:
    """Build it, and take it down. Raises Missing."""
    if shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin") is None:
        raise Missing(
            "nginx is not installed; it is what the data plane is measured against (apt install nginx-light)."
        )
    with ExitStack() as open_:
        room = Path(tempfile.mkdtemp(prefix="proxying-", dir=world.directory))
        mark = uuid.uuid4().hex[:6]  # of this stage's Spaces: an installation may see several
        files = _files(open_, room)
        raw = _python(open_, room, "raw", "benchmarks.proxying.raw_app", lambda port: [str(port)])
        gateway = _free_port()
        leases = _furnish(
            world,
            mark,
            {
                "one": f"http://127.0.0.1:{files.port}",
                "raw": f"http://127.0.0.1:{raw.port}",
                "chain": f"http://127.0.0.1:{gateway}",
                "rawchain": f"http://127.0.0.1:{gateway}",
            },
        )
        routes = [[leases["chain"][0], files.port, leases["chain"][1]]]
        routes.append([leases["rawchain"][0], raw.port, leases["rawchain"][1]])
        lone = _python(
            open_,
            room,
            "gateway",
            "benchmarks.proxying.lone_gateway",
            lambda port: [str(port), json.dumps(routes)],
            gateway,
        )
        bare = _python(
            open_,
            room,
            "bare",
            "uvicorn",
            lambda port: [
                *("benchmarks.proxying.bare_proxy:application", "--port", str(port), "--log-level", "warning"),
                *("--no-access-log", "--no-server-header", "--no-date-header", "--no-proxy-headers"),
            ],
            environment={"BARE_PROXY_TO": f"http://127.0.0.1:{files.port}"},
        )
        nginx_files = _nginx(open_, room, "nginx-files", _PROXY, to=files.port)
        nginx_raw = _nginx(open_, room, "nginx-raw", _PROXY, to=raw.port)
        data_pid = world.stack.supervisor.pid("data") or 0
        _keep_heard(open_, world)
        data = world.installation.data_port

        def ways(path: str) -> dict[str, Way]:
            return {
                "direct": Way(files.port, path, files.pids),
                "nginx": Way(nginx_files.port, path, nginx_files.pids),
                "bare": Way(bare.port, path, bare.pids),
                "one": Way(data, f"/run/owner/one-{mark}{path}", (data_pid,)),
                "chain": Way(data, f"/run/owner/chain-{mark}{path}", (data_pid, *lone.pids)),
            }

        socks = {
            "nginx": Way(nginx_raw.port, "/echo", nginx_raw.pids),
            "one": Way(data, f"/run/owner/raw-{mark}/echo", (data_pid,)),
            "chain": Way(data, f"/run/owner/rawchain-{mark}/echo", (data_pid, *lone.pids)),
        }
        yield Stage(ways("/small"), ways("/big"), socks, socks, data_pid, lone.pids[0])


def load(module: str, way: Way, **what: Any) -> dict[str, float]:
    """Run one load on one way, in a process of its own; its figures, and the CPU seconds of what carried it."""
    before = way.cpu()
    job = json.dumps({"port": way.port, "path": way.path, **what})
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.proxying.{module}", job],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
    )
    figures: dict[str, float] = json.loads(done.stdout)
    return {**figures, "cpu": way.cpu() - before}


def in_turns(module: str, ways: dict[str, Way], names: Iterable[str], **what: Any) -> list[dict[str, dict[str, float]]]:
    """Load these ways one after the other, in some rounds, after a short one for routes, connections and caches."""
    for name in names:
        load(module, ways[name], **{**what, "seconds": WARM_SECONDS})
    return [{name: load(module, ways[name], **what) for name in names} for _ in range(ROUNDS)]


def _files(open_: ExitStack, room: Path) -> Way:
    root = room / "files"
    root.mkdir()
    (root / "small").write_bytes(b"s" * 1024)
    (root / "big").write_bytes(os.urandom(1048576) * BIG_MIB)
    return _nginx(open_, room, "nginx-app", _FILES, root=root)


def _nginx(open_: ExitStack, room: Path, name: str, rest: str, **facts: Any) -> Way:
    directory = room / name
    directory.mkdir()
    port = _free_port()
    config = directory / "nginx.conf"
    config.write_text(_NGINX.format(directory=directory, rest=rest.format(port=port, **facts)))
    program = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin") or "nginx"
    command = [program, "-e", str(directory / "error.log"), "-c", str(config)]
    if os.geteuid() == 0:
        command += ["-g", "user root;"]  # it reads files of ours, in a directory that is nobody else's
    return _start(open_, room, name, command, port)


def _python(
    open_: ExitStack,
    room: Path,
    name: str,
    module: str,
    arguments: Any,
    port: int | None = None,
    environment: dict[str, str] | None = None,
) -> Way:
    port = port or _free_port()
    command = [sys.executable, "-m", module, *arguments(port)]
    return _start(open_, room, name, command, port, environment)


def _start(
    open_: ExitStack, room: Path, name: str, command: list[str], port: int, environment: dict[str, str] | None = None
) -> Way:
    log = room / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **(environment or {})})
    open_.callback(_end, process)
    eventually(lambda: _listens(port), f"{name} listens", otherwise=log.read_text)
    return Way(port, "/", (process.pid,))


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _furnish(world: World, mark: str, gateways: dict[str, str]) -> dict[str, list[str]]:
    for name in gateways:
        world.space(f"{name}-{mark}")
    environment = {**os.environ, **world.installation.environment(), "DATABASE_URL": world.database_url}
    done = subprocess.run(
        [sys.executable, "manage.py", "shell", "-v", "0", "-c", _FURNISH],
        input=json.dumps({"mark": mark, "gateways": gateways}),
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    made: dict[str, list[str]] = json.loads(done.stdout.strip().splitlines()[-1])
    return made


def _keep_heard(open_: ExitStack, world: World) -> None:
    """Say now and then that the workers of those rows were heard: there is no program that would."""
    over = threading.Event()

    def beat() -> None:
        with psycopg.connect(world.database_url, autocommit=True) as database:
            while True:
                database.execute("UPDATE workers_worker SET last_seen_at = now() WHERE name LIKE 'bench-%'")
                if over.wait(BEAT_SECONDS):
                    return

    thread = threading.Thread(target=beat, name="bench-beats", daemon=True)
    thread.start()
    open_.callback(thread.join, 20)
    open_.callback(over.set)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
