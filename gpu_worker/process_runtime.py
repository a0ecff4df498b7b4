"""One app of the process executor, and everything it started: how it is, what it says, and its end.

Where no file can be opened any more, what needs one raises EngineSilent: what is there is not known then.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path

from gpu_worker.commands import Cancel
from gpu_worker.deep_trees import remove_tree
from gpu_worker.environment import LEASE_VARIABLE, WORKER_VARIABLE
from gpu_worker.errors import EngineError, EngineSilent, JobFailed
from gpu_worker.executor import RuntimeState
from gpu_worker.journal import JobFacts
from gpu_worker.open_files import looking, used_up
from gpu_worker.process_identity import ProcessIdentity, all_pids, environment_of, session_of
from gpu_worker.process_results import paths_in, tar_of

POLL_SECONDS = 0.1
READ_BYTES = 64 * 1024
RESULTS = "results"  # the directory of a batch job's results, in its run's
OUTPUT_LIMIT_BYTES = 32 * 1024 * 1024  # the file starts anew beyond it, as a container's log does
KILL_SECONDS = 5.0  # the kernel needs a moment to clear a killed process


class ProcessRuntime:
    """One app and everything it started."""

    image_id: str | None = None

    def __init__(self, worker_id: str, run: Path, facts: JobFacts) -> None:
        self._worker_id, self._run, self._facts = worker_id, run, facts

    @property
    def reference(self) -> str:
        try:
            leader = self._leader()  # not the live members: heartbeats ask, and a look at every process costs 20 ms
        except OSError:
            return "not known"
        return f"pid {leader.pid}" if leader else "no process"

    def address(self) -> tuple[str, int]:
        try:
            return "127.0.0.1", int((self._run / "port").read_text())
        except (OSError, ValueError) as problem:
            raise EngineError("the app has no port") from problem

    def state(self) -> RuntimeState:
        with looking():
            return self._state()

    def _state(self) -> RuntimeState:
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
            try:
                ended = self.state().status != "running"
                with looking():
                    file = open(path, "rb")  # noqa: SIM115  # closed below
                with file:
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
            except EngineSilent:
                ended = False  # not known
            if ended:
                return
            time.sleep(POLL_SECONDS)

    def environment(self) -> Mapping[str, str]:
        members = self._members()
        with looking():
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
        with looking():
            return members_of(self._worker_id, self._facts.lease)

    def _leader(self) -> ProcessIdentity | None:
        """The session's leader, to spare the look at every process of the machine while it lives."""
        try:
            return ProcessIdentity(**json.loads((self._run / "leader").read_text()))
        except (OSError, ValueError, TypeError) as problem:
            if used_up(problem):
                raise
            return None

    def _exit_code(self) -> int | None:
        try:
            return int((self._run / "exit-code").read_text())
        except (OSError, ValueError) as problem:
            if used_up(problem):
                raise
            return None


def members_of(worker_id: str, lease: str) -> list[int]:
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
