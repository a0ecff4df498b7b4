"""Start programs, keep them running, show what they say, and end them again: all of them, whatever happens.

Knows nothing of what it runs. Each program runs in a session of its own, so that Ctrl-C in the terminal reaches only us
and the order in which things stop is ours. Their process ids are written down: if we are killed ourselves, the next
start ends what we left behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TextIO

FIRST_PAUSE_SECONDS = 0.5  # before a program that died is started again; doubled each time
LONGEST_PAUSE_SECONDS = 30.0
HEALTHY_SECONDS = 30.0  # who lived this long begins again with the first pause


@dataclass(frozen=True)
class Program:
    """What to run. An exit status in `final_statuses` means that starting it again cannot help.

    A program that `listens` at a host and port is given the listening socket, as the file descriptor that takes the
    place of `{fd}` in its command. We keep that socket until the program is stopped: whoever connects while it is
    started again waits instead of being refused.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: Path | None = None
    stop_seconds: float = 15.0  # between SIGTERM and SIGKILL
    final_statuses: frozenset[int] = frozenset()
    listens: tuple[str, int] | None = None


class Supervisor:
    """A set of programs by name. All methods may be called from any thread.

    `record` is the file with the process ids; what an earlier owner of it left running is ended at once.
    """

    def __init__(self, record: Path, *, output: TextIO | None = None) -> None:
        self._record = record
        self._printer = _Printer(output or sys.stdout)
        self._keepers: dict[str, _Keeper] = {}
        self._record_lock = threading.Lock()
        for name in end_leftovers(record):
            self.say(f"ended {name}, left behind by an earlier run that was killed")

    def say(self, sentence: str) -> None:
        """Print a line of our own between those of the programs."""
        self._printer.line("openface", sentence)

    def start(self, program: Program) -> None:
        """Start the program and keep it running until it is stopped, killed, or ends with a final status."""
        self._start(program, listen(*program.listens) if program.listens else None)

    def _start(self, program: Program, listener: socket.socket | None) -> None:
        earlier = self._keepers.get(program.name)
        if earlier and earlier.is_at_work():
            raise ValueError(f"{program.name} is running already")
        keeper = _Keeper(program, listener, self._printer, self._write_record)
        self._keepers[program.name] = keeper
        keeper.start()

    def stop(self, name: str) -> int | None:
        """Ask the program to end, insist after its `stop_seconds`, and return its exit status (None: it never ran)."""
        status = self._keepers[name].end(signal.SIGTERM)
        self._keepers[name].refuse()
        return status

    def kill(self, name: str) -> int | None:
        """End the program without a chance to clean up (as a crash would), and do not start it again."""
        status = self._keepers[name].end(signal.SIGKILL)
        self._keepers[name].refuse()
        return status

    def restart(self, name: str) -> None:
        """Stop the program and start it anew. Whoever connects meanwhile waits."""
        keeper = self._keepers[name]
        keeper.end(signal.SIGTERM)
        self._start(keeper.program, keeper.listener)

    def resume(self, name: str) -> None:
        """Start a program again that was stopped or killed."""
        self.start(self._keepers[name].program)

    def pid(self, name: str) -> int | None:
        """Return the program's process id; None while it does not run, also between two tries."""
        keeper = self._keepers.get(name)
        return keeper.pid() if keeper else None

    def given_up(self, name: str) -> int | None:
        """Return the final status with which the program ended by itself, or None."""
        keeper = self._keepers.get(name)
        return keeper.final_status if keeper else None

    def hurry(self) -> None:
        """Let nobody finish in peace any more: whoever still runs is killed."""
        for keeper in list(self._keepers.values()):
            keeper.hurry()

    def stop_all(self) -> None:
        """Stop what still runs, the latest first."""
        for name in reversed(list(self._keepers)):
            self.stop(name)
        self._record.unlink(missing_ok=True)

    def _write_record(self) -> None:
        with self._record_lock:
            running = [
                {"name": name, "pid": pid, "started": started}
                for name, keeper in list(self._keepers.items())
                if (pid := keeper.pid()) is not None and (started := start_of(pid)) is not None
            ]
            making = self._record.with_name(f"{self._record.name}.new")
            making.write_text(json.dumps(running), encoding="utf-8")
            making.rename(self._record)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there, for programs to accept from. Raises OSError."""
    return socket.create_server((host, port), backlog=2048)


class _Keeper:
    """One program: a thread starts it, waits for its end and decides whether to start it again.

    Only that thread takes the exit status from the kernel, under the lock; so a signal sent under the lock never
    reaches a stranger that got the same process id.
    """

    def __init__(
        self, program: Program, listener: socket.socket | None, printer: _Printer, changed: Callable[[], None]
    ) -> None:
        self.program = program
        self.listener = listener
        self.final_status: int | None = None
        self._printer = printer
        self._changed = changed
        self._process: subprocess.Popen[str] | None = None  # None while it does not run
        self._status: int | None = None  # of the last end
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._keep, name=f"keep {program.name}", daemon=True)

    def start(self) -> None:
        self._spawn()  # here, so that a command that does not exist is the caller's error
        self._thread.start()

    def pid(self) -> int | None:
        process = self._process
        return process.pid if process else None

    def is_at_work(self) -> bool:
        """Tell whether the program runs or is about to be started again."""
        return self._thread.is_alive()

    def end(self, way: signal.Signals) -> int | None:
        """Send the signal, insist after `stop_seconds`, return the last exit status."""
        self._signal(way)
        self._thread.join(self.program.stop_seconds)
        if self._thread.is_alive():
            self._printer.line(self.program.name, f"did not stop within {self.program.stop_seconds:g} s: killed")
            self._signal(signal.SIGKILL)
            self._thread.join()
        return self._status

    def hurry(self) -> None:
        self._signal(signal.SIGKILL)

    def refuse(self) -> None:
        """Nobody will accept a connection here."""
        if self.listener is not None:
            self.listener.close()

    def _signal(self, way: signal.Signals) -> None:
        with self._lock:
            self._ending.set()
            if self._process:
                # Not by `send_signal`: that takes the exit status of a program that has just ended from our thread.
                os.kill(self._process.pid, way)

    def _spawn(self) -> None:
        with self._lock:
            if self._ending.is_set():
                return
            fds = [] if self.listener is None else [self.listener.fileno()]
            self._process = subprocess.Popen(
                [str(fds[0]) if part == "{fd}" else part for part in self.program.command],
                pass_fds=fds,
                env={**os.environ, **self.program.environment, "PYTHONUNBUFFERED": "1"},
                cwd=self.program.directory,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,
            )
            # Its own thread: a grandchild may keep the pipe open long after the program has ended.
            threading.Thread(target=self._pump, args=[self._process.stdout], daemon=True).start()
        self._changed()

    def _keep(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while not self._ending.is_set() or self._process:
            began = time.monotonic()
            self._status = status = self._wait()
            self._changed()
            if self._ending.is_set():
                return
            if status in self.program.final_statuses:
                self.final_status = status
                self.refuse()
                self._printer.line(self.program.name, f"ended with status {status} and is not started again")
                return
            if time.monotonic() - began > HEALTHY_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            self._printer.line(self.program.name, f"ended with {_in_words(status)}; starts again in {pause:g} s")
            if self._ending.wait(pause):
                return
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
            while not self._respawn():
                if self._ending.wait(pause):
                    return

    def _respawn(self) -> bool:
        try:
            self._spawn()
        except OSError as error:  # no memory, no process to be had, or the program is being replaced
            self._printer.line(self.program.name, f"cannot be started: {error}")
            return False
        return True

    def _wait(self) -> int:
        """Wait for the end of the program and of what it left in its process group."""
        assert self._process is not None
        pid = self._process.pid
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        with self._lock:
            # Its id is still taken, by the dead process itself: the group cannot be anybody else's.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
            status = self._process.wait()
            self._process = None
        return status

    def _pump(self, stream: IO[str]) -> None:
        with contextlib.suppress(ValueError), stream:
            for line in stream:
                self._printer.line(self.program.name, line.rstrip())


class _Printer:
    """Whole lines from many threads, each with the name of who says it."""

    WIDTH = 10

    def __init__(self, output: TextIO) -> None:
        self._output = output
        self._lock = threading.Lock()

    def line(self, name: str, text: str) -> None:
        # A terminal that was closed must not stop us from cleaning up.
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._output.write(f"{name:<{self.WIDTH}} | {text}\n")
            self._output.flush()


def start_of(pid: int) -> str | None:
    """Return what tells this process from a later one with the same number, or None when it does not run.

    The kernel's tick of its start, and the boot it belongs to.
    """
    with contextlib.suppress(OSError, IndexError):
        # The second field is the program's name in brackets and may hold anything: count from its end.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        if fields[0] != "Z":
            return f"{fields[19]}@{Path('/proc/sys/kernel/random/boot_id').read_text(encoding='ascii').strip()}"
    return None


def end_leftovers(record: Path, *, patience_seconds: float = 10.0) -> list[str]:
    """End the processes that are written in `record` and still run; return their names. Never a stranger's."""
    try:
        written = json.loads(record.read_text(encoding="utf-8"))
        left = [(str(entry["name"]), int(entry["pid"]), str(entry["started"])) for entry in written]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    ours = [(name, pid, started) for name, pid, started in left if start_of(pid) == started]
    for way in (signal.SIGTERM, signal.SIGKILL):
        for _, pid, started in ours:
            if start_of(pid) == started:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, way)
        deadline = time.monotonic() + patience_seconds
        while any(start_of(pid) == started for _, pid, started in ours) and time.monotonic() < deadline:
            time.sleep(0.05)
    record.unlink(missing_ok=True)
    return [name for name, _, _ in ours]


def _in_words(status: int) -> str:
    return f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
