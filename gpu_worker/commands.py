"""Run one child process: its own process group, its output streamed, cancellable at any moment."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from gpu_worker.errors import JobInterrupted
from gpu_worker.process_identity import ProcessIdentity, signal_group

READ_BYTES = 65536
CANCEL_CHECK_SECONDS = 0.1
WATCH_SECONDS = 0.5
POLL_SECONDS = 0.02
INTERRUPT_GRACE_SECONDS = 2.0  # docker's client needs a moment to tell the daemon that a build is off


class Cancel(Protocol):
    """Anything that can say "stop now": a threading.Event, or a runner's combination of reasons."""

    def is_set(self) -> bool: ...


class CommandTimeout(Exception):
    """The command ran longer than it may."""


def run_command(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    output: Callable[[bytes], None],
    cancel: Cancel,
    cwd: Path | None = None,
    timeout_seconds: float | None = None,
    started: Callable[[ProcessIdentity | None], None] | None = None,
    watch: Callable[[], None] | None = None,
) -> int:
    """Run *argv* to its end and return its exit code; stdout and stderr go to *output* as they come.

    *started* hears the identity of the child, so that a journal can find it after a crash of ours. *watch* is called
    twice a second. Raises JobInterrupted when *cancel* is set, CommandTimeout when the time is over, and what *output*
    and *watch* raise; the whole group is gone then.
    """
    child = subprocess.Popen(
        list(argv),
        cwd=cwd,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        if started is not None:
            started(ProcessIdentity.of(child.pid))
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        _pump(child, output, cancel, deadline, watch)
        while not _has_ended(child.pid):
            time.sleep(POLL_SECONDS)
    finally:
        _end_group(child)
    return child.returncode


def _pump(
    child: subprocess.Popen[bytes],
    output: Callable[[bytes], None],
    cancel: Cancel,
    deadline: float | None,
    watch: Callable[[], None] | None,
) -> None:
    assert child.stdout is not None
    descriptor = child.stdout.fileno()
    waiting = select.poll()  # select() cannot watch above descriptor 1023, and the gateway has one per visitor
    waiting.register(descriptor, select.POLLIN | select.POLLHUP)
    watched_at = time.monotonic()
    while True:
        if cancel.is_set():
            raise JobInterrupted
        if deadline is not None and time.monotonic() > deadline:
            raise CommandTimeout
        if watch is not None and time.monotonic() - watched_at >= WATCH_SECONDS:
            watch()
            watched_at = time.monotonic()
        if waiting.poll(CANCEL_CHECK_SECONDS * 1000):
            data = os.read(descriptor, READ_BYTES)
            if not data:
                return
            output(data)
        elif _has_ended(child.pid):
            return  # a grandchild may keep the pipe open; the command itself has ended


def _has_ended(pid: int) -> bool:
    """Whether our child ended, without reaping it: until then its pid, and so its group's id, is not given again."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


def _end_group(child: subprocess.Popen[bytes]) -> None:
    if not _has_ended(child.pid):
        signal_group(child.pid, signal.SIGINT)
        deadline = time.monotonic() + INTERRUPT_GRACE_SECONDS
        while not _has_ended(child.pid) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
    signal_group(child.pid, signal.SIGKILL)  # what is left of the group: the leader or its children
    child.wait()
    if child.stdout is not None:
        child.stdout.close()
