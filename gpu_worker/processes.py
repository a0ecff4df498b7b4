"""The ``process`` executor: runs a Space's app_file as a plain process. For demos and tests only: **no isolation**.

Each app has a session of its own and writes to a file, so it outlives a restart of the worker and is taken over by
the next one. It is found by two marks in its environment (worker, lease), killed with everything that carries them,
and a recycled pid is never mistaken for it.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from gpu_worker.app_plan import AppPlan, read_plan
from gpu_worker.atomic import write_private
from gpu_worker.commands import Cancel
from gpu_worker.deep_trees import remove_tree
from gpu_worker.environment import LEASE_VARIABLE, RESULTS_VARIABLE, WORKER_VARIABLE, job_environment
from gpu_worker.errors import JobFailed
from gpu_worker.executor import Found, Prepared, Runtime
from gpu_worker.journal import JobFacts, JobRecord
from gpu_worker.open_files import looking, used_up
from gpu_worker.process_identity import ProcessIdentity
from gpu_worker.process_runtime import RESULTS, ProcessRuntime, members_of
from gpu_worker.protocol import Claim, Gpu
from gpu_worker.venvs import Venvs

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
        with looking():
            return self._launch(record, prepared, variables, secrets, assigned)

    def _launch(
        self,
        record: JobRecord,
        prepared: Prepared,
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
                if used_up(problem):
                    raise
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
        with looking():
            return self._inventory()

    def _inventory(self) -> list[Found]:
        found = []
        for run in sorted(self._runs.iterdir()):
            try:
                facts = JobFacts.parse((run / "facts.json").read_text())
            except (OSError, ValueError) as problem:
                if used_up(problem):
                    raise
                continue  # not started yet: nothing of it can run
            runtime = ProcessRuntime(self._worker_id, run, facts)
            found.append(Found(facts, runtime.reference, runtime.state().status))
        return found

    def remove_strays(self, leases: set[str]) -> None:
        """Remove the directories of leases that nobody holds and nothing runs for."""
        with looking():
            for run in self._runs.iterdir():
                if run.name not in leases and not members_of(self._worker_id, run.name):
                    remove_tree(run)


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
