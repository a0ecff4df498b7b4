"""The ``process`` executor: runs a Space's app_file as a plain process. For demos and tests only: **no isolation**.

Each app has a session of its own and writes to a file, so it outlives a restart of the worker and is taken over by
the next one. It is found by two marks in its environment (worker, lease), killed with everything that carries them,
and a recycled pid is never mistaken for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from gpu_worker.app_plan import AppPlan, read_plan
from gpu_worker.atomic import write_private
from gpu_worker.commands import Cancel
from gpu_worker.deep_trees import remove_tree
from gpu_worker.environment import LEASE_VARIABLE, RESULTS_VARIABLE, WORKER_VARIABLE, job_environment
from gpu_worker.errors import EngineError, JobFailed
from gpu_worker.executor import Found, Prepared, Runtime, RuntimeState
from gpu_worker.journal import JobFacts, JobRecord
from gpu_worker.process_identity import ProcessIdentity, all_pids, environment_of, session_of
from gpu_worker.process_results import paths_in, tar_of
from gpu_worker.protocol import Claim, Gpu
from gpu_worker.venvs import Venvs

POLL_SECONDS = 0.1
READ_BYTES = 64 * 1024
RESULTS = "results"  # the directory of a batch job's results, in its run's
OUTPUT_LIMIT_BYTES = 32 * 1024 * 1024  # the file starts anew beyond it, as a container's log does
KILL_SECONDS = 5.0  # the kernel needs a moment to clear a killed process

# The shell stays as the session's leader and leaves the exit code in a file, which outlives a worker that is away.
_KEEP_EXIT_CODE = 'file=$1; shift; "$@"; code=$?; printf %s "$code" > "$file.new"; mv "$file.new" "$file"'


class ProcessExecutor:
    """Runs jobs as processes under *data_dir*."""

    name = "process"

    def __init__(self, worker_id: str, data_dir: Path) -> None:
        self._worker_id = worker_id
        self._runs = data_dir / "runs"
        self._venvs = Venvs(data_dir / "venvs")
        self._runs.mkdir(parents=True, exist_ok=True)

    # -- build -------------------------------------------------------------------------------------------------

    def at_hand(self, claim: Claim) -> Prepared | None:
        return None  # each run has a source of its own

    def foundation(self, claim: Claim, source: Path) -> Mapping[str, str]:
        return {}

    def prepare(
        self,
        claim: Claim,
        source: Path,
        *,
        output: Callable[[bytes], None],
        cancel: Cancel,
        started: Callable[[ProcessIdentity | None], None],
    ) -> Prepared:
        plan = plan_process(claim, source)
        python = self._venvs.python(plan, claim, source, output=output, cancel=cancel, started=started)
        directory = self._runs / claim.lease / "source"
        directory.parent.mkdir(parents=True, exist_ok=True)
        remove_tree(directory)
        shutil.copytree(source, directory, symlinks=True)
        if plan.sdk == "static" and plan.page != "index.html":
            index = directory / plan.folder / "index.html"
            index.unlink(missing_ok=True)
            index.symlink_to(plan.page)
        return Prepared(argv=(str(python), *_arguments(plan)), directory=directory)

    # -- run ---------------------------------------------------------------------------------------------------

    def launch(
        self,
        record: JobRecord,
        prepared: Prepared,
        *,
        variables: Mapping[str, str],
        secrets: Mapping[str, str],
        assigned: Sequence[Gpu],
    ) -> Runtime:
        facts = record.facts
        present = self.find(record)
        if present is not None and present.state().status == "running":
            return present
        run, port = self._runs / facts.lease, _free_port()
        environment = {
            **_run_environment(run),
            **_for_this_host(
                job_environment(facts, variables=variables, secrets=secrets, port=port, assigned=assigned),
                facts.port,
                port,
            ),
            "PORT": str(port),
            **({RESULTS_VARIABLE: str(run / RESULTS)} if facts.mode == "batch" else {}),
            WORKER_VARIABLE: self._worker_id,
            LEASE_VARIABLE: facts.lease,
            "PYTHONUNBUFFERED": "1",
        }
        (run / RESULTS).mkdir(exist_ok=True)
        for former in ("exit-code", "leader"):
            (run / former).unlink(missing_ok=True)
        write_private(run / "facts.json", facts.dump())
        write_private(run / "port", str(port))
        with open(run / "output", "ab") as output:
            try:
                child = subprocess.Popen(
                    [
                        "/bin/sh",
                        "-c",
                        _KEEP_EXIT_CODE,
                        "sh",
                        str(run / "exit-code"),
                        *(argument.replace("{port}", str(port)) for argument in prepared.argv),
                    ],
                    cwd=prepared.directory,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as problem:
                raise JobFailed("start_failed", f"The app could not be started: {problem}") from problem
        # reaps the child when it ends: a zombie would look alive to nobody but keep its pid
        threading.Thread(target=child.wait, name=f"reap-{child.pid}", daemon=True).start()
        record.process = ProcessIdentity.of(child.pid)
        if record.process is not None:
            write_private(run / "leader", json.dumps(asdict(record.process)))
        return ProcessRuntime(self._worker_id, run, facts)

    # -- what is there -----------------------------------------------------------------------------------------

    def find(self, record: JobRecord) -> Runtime | None:
        run = self._runs / record.facts.lease
        return ProcessRuntime(self._worker_id, run, record.facts) if (run / "port").exists() else None

    def note_good(self, record: JobRecord) -> None:
        pass  # an environment is kept by its requirements

    def incarnation(self) -> str | None:
        return None

    def inventory(self) -> list[Found]:
        found = []
        for run in sorted(self._runs.iterdir()):
            try:
                facts = JobFacts.parse((run / "facts.json").read_text())
            except (OSError, ValueError):
                continue  # not started yet: nothing of it can run
            runtime = ProcessRuntime(self._worker_id, run, facts)
            found.append(Found(facts, runtime.reference, runtime.state().status))
        return found

    def remove_strays(self, leases: set[str]) -> None:
        """Remove the directories of leases that nobody holds and nothing runs for."""
        for run in self._runs.iterdir():
            if run.name not in leases and not _members(self._worker_id, run.name):
                remove_tree(run)


class ProcessRuntime:
    """One app and everything it started."""

    image_id: str | None = None

    def __init__(self, worker_id: str, run: Path, facts: JobFacts) -> None:
        self._worker_id, self._run, self._facts = worker_id, run, facts

    @property
    def reference(self) -> str:
        leader = self._leader()  # not the live members: heartbeats ask, and a look at every process costs 20 ms
        return f"pid {leader.pid}" if leader else "no process"

    def address(self) -> tuple[str, int]:
        try:
            return "127.0.0.1", int((self._run / "port").read_text())
        except (OSError, ValueError) as problem:
            raise EngineError("the app has no port") from problem

    def state(self) -> RuntimeState:
        if not self._run.exists():
            return RuntimeState("gone")
        code = self._exit_code()
        if code is not None:
            return RuntimeState("exited", exit_code=code)
        leader = self._leader()
        if (leader is not None and leader.alive()) or self._members():
            return RuntimeState("running")
        code = self._exit_code()  # it may have ended between the two looks
        return RuntimeState("exited", exit_code=code)

    def start(self) -> None:
        # its secrets are nowhere but in the environment of the process that is gone
        raise JobFailed("process_lost", "The app's process is gone and cannot be started again by itself.")

    def follow(self, position: str | None, *, over: Cancel, stop: Cancel) -> Iterator[tuple[bytes, str]]:
        path, at = self._run / "output", int(position or 0)
        while not stop.is_set():
            ended = self.state().status != "running"
            try:
                with open(path, "rb") as file:
                    file.seek(at)
                    while data := file.read(READ_BYTES):
                        at += len(data)
                        yield data, str(at)
                        if stop.is_set():
                            return
                    if at > OUTPUT_LIMIT_BYTES and not ended:
                        os.truncate(path, 0)  # the app appends, so it goes on at the new end
                        at = 0
            except FileNotFoundError:
                return
            if ended:
                return
            time.sleep(POLL_SECONDS)

    def environment(self) -> Mapping[str, str]:
        members = self._members()
        return environment_of(members[0]) if members else {}

    def listening(self) -> Sequence[str] | None:
        return None  # the namespace is the host's: its sockets say nothing about this app

    def execute(self, argv: Sequence[str]) -> tuple[int | None, bytes]:
        return None, b""  # nothing surrounds it that the machine itself does not see

    def results(self, path: str = "") -> Generator[bytes, None, None] | None:
        return tar_of(self._run / RESULTS, path)

    def result_paths(self) -> Sequence[str]:
        return paths_in(self._run / RESULTS)

    def news(self) -> Sequence[str]:
        return ()  # it has no limits

    def stop(self, grace_seconds: float) -> None:
        self._signal(signal.SIGTERM)
        self._wait_gone(grace_seconds)
        deadline = time.monotonic() + KILL_SECONDS
        while self._members() and time.monotonic() < deadline:
            self._signal(signal.SIGKILL)  # again: a fork may have slipped between the look and the kill
            self._wait_gone(POLL_SECONDS)

    def remove(self) -> None:
        self.stop(0)
        if self._members():
            raise EngineError("a process of this job does not end")
        remove_tree(self._run)

    def _wait_gone(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self._members() and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS / 2)

    def _signal(self, number: signal.Signals) -> None:
        for pid in self._members():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _members(self) -> list[int]:
        return _members(self._worker_id, self._facts.lease)

    def _leader(self) -> ProcessIdentity | None:
        """The session's leader, to spare the look at every process of the machine while it lives."""
        try:
            return ProcessIdentity(**json.loads((self._run / "leader").read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def _exit_code(self) -> int | None:
        try:
            return int((self._run / "exit-code").read_text())
        except (OSError, ValueError):
            return None


def _members(worker_id: str, lease: str) -> list[int]:
    """Live pids that carry our two marks, and everything in their sessions; the oldest first.

    The marks are read anew each time, so a recycled pid is never among them.
    """
    marked, sessions = set(), {}
    for pid in all_pids():
        session = session_of(pid)
        if session is None:
            continue
        sessions[pid] = session
        environment = environment_of(pid)
        if environment.get(LEASE_VARIABLE) == lease and environment.get(WORKER_VARIABLE) == worker_id:
            marked.add(pid)
    own = {sessions[pid] for pid in marked if sessions[pid] in marked}
    return sorted(marked | {pid for pid, session in sessions.items() if session in own})


def plan_process(claim: Claim, source: Path) -> AppPlan:
    """What to run of a repository. Raises JobFailed where it names nothing that a plain process could run."""
    if not claim.app_file and claim.sdk in (None, "docker") and (source / "Dockerfile").is_file():
        raise JobFailed("no_app_file", "This worker runs plain processes, and the repository names no app_file.")
    return read_plan(claim, source)


def _arguments(plan: AppPlan) -> tuple[str, ...]:
    """What Python gets on its command line."""
    match plan.sdk:
        case "static":
            return ("-m", "http.server", "--bind", "127.0.0.1", "--directory", plan.folder, "{port}")
        case "streamlit":
            address = ("--server.headless", "true", "--server.address", "127.0.0.1", "--server.port", "{port}")
            return ("-m", "streamlit", "run", plan.app_file, *address)
        case _:
            return (plan.app_file,)


def _for_this_host(environment: dict[str, str], meant: int, real: int) -> dict[str, str]:
    """Variables of the claim are written for a container: give the port we picked, and stay on loopback."""
    adapted = {}
    for name, value in environment.items():
        if name.endswith("PORT") and value == str(meant):
            value = str(real)
        elif value == "0.0.0.0":
            value = "127.0.0.1"
        adapted[name] = value
    return adapted


def _run_environment(run: Path) -> dict[str, str]:
    """The little of our environment that an app gets: none of our settings or tokens."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", "HOME": str(run)}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
