"""Python environments for the ``process`` executor: one per set of requirements, made once and shared."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from gpu_worker.app_plan import AppPlan
from gpu_worker.commands import Cancel, CommandTimeout, run_command
from gpu_worker.deep_trees import remove_tree
from gpu_worker.errors import JobFailed, JobInterrupted
from gpu_worker.images import BUILD_TIMEOUT_SECONDS
from gpu_worker.process_identity import ProcessIdentity
from gpu_worker.protocol import Claim

LOCK_POLL_SECONDS = 0.2

_KEPT_VARIABLES = frozenset(
    {"PATH", "HOME", "LANG", "TMPDIR", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"}
)
"""Of our own environment for pip, besides its own PIP_… settings."""


class Venvs:
    """Environments under *directory*. One is complete when it holds the mark; a half-made one is made anew."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._locks: dict[str, threading.Lock] = {}
        self._guard = threading.Lock()

    def python(
        self,
        plan: AppPlan,
        claim: Claim,
        source: Path,
        *,
        output: Callable[[bytes], None],
        cancel: Cancel,
        started: Callable[[ProcessIdentity | None], None],
    ) -> Path:
        """The interpreter with what the repository asks pip for (a bare one where it asks for nothing).

        Raises JobFailed (``build_failed``, ``build_timeout``) or JobInterrupted.
        """
        for note in _left_out(plan):
            output(f"{note}\n".encode())
        venv = self._directory / _key(plan, claim, source)
        python, complete = venv / "bin" / "python", venv / ".complete"
        lock = self._lock_of(venv.name)
        while not lock.acquire(timeout=LOCK_POLL_SECONDS):
            if cancel.is_set():
                raise JobInterrupted
        try:
            if complete.exists():
                output(b"The Python environment is already here; nothing to install.\n")
                return python
            remove_tree(venv)
            for argv in _commands(venv, plan):
                _run(argv, claim, source, output, cancel, started)
            complete.touch()
            return python
        finally:
            lock.release()

    def _lock_of(self, key: str) -> threading.Lock:
        with self._guard:
            return self._locks.setdefault(key, threading.Lock())


def _left_out(plan: AppPlan) -> list[str]:
    """What the repository asks for and a process on this machine does not get."""
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    notes = []
    if plan.python is not None and f"{plan.python}.".split(".")[:2] != ours.split("."):
        notes.append(f"The README asks for Python {plan.python}; this worker runs plain processes with Python {ours}.")
    if plan.system_packages:
        names = " ".join(plan.system_packages)
        notes.append(f"This worker runs plain processes and installs no Debian packages: {names}.")
    return notes


def _key(plan: AppPlan, claim: Claim, source: Path) -> str:
    parts = [f"{sys.version_info.major}.{sys.version_info.minor}", *plan.packages]
    parts += [(source / name).read_text(encoding="utf-8", errors="replace") for name in plan.requirement_files]
    if plan.names_files:
        parts.append(f"{claim.repository_id}@{claim.revision}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:20]


def _commands(venv: Path, plan: AppPlan) -> list[list[str]]:
    # the interpreter below our own venv, so that the app does not see the worker's libraries
    base = str(getattr(sys, "_base_executable", sys.executable))
    make = [base, "-m", "venv", "--without-pip", str(venv)]
    installs = plan.installs()
    if not installs:
        return [make]
    inside = str(venv / "bin" / "python")
    if importlib.util.find_spec("pip") is not None:
        pip = [sys.executable, "-m", "pip", "--python", inside]  # ours serves: a pip of its own costs 5 s of CPU
    else:
        make, pip = [base, "-m", "venv", str(venv)], [inside, "-m", "pip"]
    return [make, *([*pip, "install", "--disable-pip-version-check", "--no-input", *words] for words in installs)]


def _run(
    argv: Sequence[str],
    claim: Claim,
    source: Path,
    output: Callable[[bytes], None],
    cancel: Cancel,
    started: Callable[[ProcessIdentity | None], None],
) -> None:
    limit = claim.limits.build_timeout_seconds or BUILD_TIMEOUT_SECONDS
    environment = {
        name: value for name, value in os.environ.items() if name in _KEPT_VARIABLES or name.startswith("PIP_")
    }
    try:
        code = run_command(
            argv, cwd=source, env=environment, output=output, cancel=cancel, timeout_seconds=limit, started=started
        )
    except CommandTimeout:
        raise JobFailed("build_timeout", f"The installation took longer than its limit of {limit:.0f} s.") from None
    if code != 0:
        raise JobFailed("build_failed", f"Installing its packages ended with code {code}; see the build log.")
