"""What the demo's workers have running on this machine: to see that it is the same as before, or that nothing is left.

Asks the machine itself (engine and kernel), not our database: a proof must not come from who is to be proven.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterable
from pathlib import Path

from openface.demo.engine import Engine
from openface.supervisor import start_of

# Containers and processes carry who runs them; see the worker's side of the same convention.
_LABEL = "openface.worker"
_VARIABLE = "OPENFACE_WORKER"
_LISTS = {
    "container": ("ps", "--all"),
    "network": ("network", "ls"),
    "volume": ("volume", "ls"),
    "image": ("image", "ls"),
}
_ENDS_WITH_THE_JOB = ("container", "network", "volume")
_END_SECONDS = 10.0


def worker_id(directory: Path) -> str | None:
    """Return the id of the worker whose directory this is, or None before it has enrolled."""
    try:
        credential = json.loads((directory / "credential.json").read_text(encoding="utf-8"))["credential"]
        return str(uuid.UUID(credential.split("_")[1]))
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return None


def apps_of(worker: str, engine: Engine) -> set[str]:
    """Return the apps that this worker has running, each by something no other one will ever have."""
    if engine.has_containers:
        return set(_on_engine("container", worker))
    # A process ends and its number comes again: its start belongs to its name.
    return {f"{pid}:{start_of(pid)}" for pid in _leaders_of(worker)}


def remains_of(workers: Iterable[str], engine: Engine) -> list[str]:
    """Return everything that these workers have left, in words."""
    left = []
    for worker in workers:
        left += [f"process {pid}" for pid in _processes_of(worker)]
        if engine.has_containers:
            left += [f"{kind} {name}" for kind in _ENDS_WITH_THE_JOB for name in _on_engine(kind, worker)]
    return left


def remove_remains(workers: Iterable[str], engine: Engine) -> None:
    """End and remove what these workers have left, without asking anybody."""
    for worker in workers:
        for pid in _processes_of(worker):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if engine.has_containers:
            if containers := _on_engine("container", worker):
                _docker("rm", "--force", "--volumes", *containers)
            for kind in ("network", "volume"):
                if names := _on_engine(kind, worker):
                    _docker(kind, "rm", *names)
        deadline = time.monotonic() + _END_SECONDS
        while _processes_of(worker) and time.monotonic() < deadline:
            time.sleep(0.05)


def remove_images(workers: Iterable[str], engine: Engine) -> None:
    """Remove what these workers have built: only for workers that are never back, for a next start reuses it."""
    for worker in workers:
        if engine.has_containers and (images := _on_engine("image", worker)):
            _docker("image", "rm", "--force", *images)


def _on_engine(kind: str, worker: str) -> list[str]:
    return _docker(*_LISTS[kind], "--quiet", "--filter", f"label={_LABEL}={worker}").split()


def _docker(*arguments: str) -> str:
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=60, check=False).stdout


def _processes_of(worker: str) -> list[int]:
    wanted = f"{_VARIABLE}={worker}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def _leaders_of(worker: str) -> list[int]:
    """Return those of its processes that began a session: one for each app, whatever the app starts itself."""
    leaders = []
    for pid in _processes_of(worker):
        with contextlib.suppress(OSError):
            if os.getsid(pid) == pid:
                leaders.append(pid)
    return leaders
