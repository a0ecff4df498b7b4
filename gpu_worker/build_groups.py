"""The control group in which builds run, so that a step of a build cannot take the whole machine.

BuildKit bounds no build itself. What it does is to run each step in a control group below one that it is told
(``--cgroup-parent``: Docker 23 and newer, by buildx), or else below the engine's own for builds. There are three ways:

- The machine's owner has made a slice named ``openface-builds``: its limits count, and this worker needs no rights.
- A group of our own, made here: needs root on the host.
- With an older Docker the group of all builds on this machine, those of others too. It is bounded only while a build of
  ours runs, and never where somebody has bounded it already.

Where none is possible, builds run all the same, and the doctor says so.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_worker.build_settings import BuildSettings
from gpu_worker.engine_address import engine_address
from gpu_worker.host import in_container

logger = logging.getLogger(__name__)

ROOT = Path("/sys/fs/cgroup")
OWN, SLICE = "openface-builds", "openface-builds.slice"
ENGINES_OWN = "docker/buildkit"
MIB = 1024 * 1024
CPU_SHARE = 0.25  # of what other groups get where the processors are short
NOT_SETTABLE = "this user may not set control groups"
UNLIMITED_BYTES = 2**60  # what the first version of control groups shows instead of a word is some number above this


@dataclass(frozen=True)
class BuildLimits:
    """For the steps of all builds together."""

    memory_mib: int
    pids: int


class ControlGroup:
    """One group in either version of control groups, by its path below the root. Raises OSError."""

    def __init__(self, path: str, root: Path = ROOT) -> None:
        self._path, self._root = path, root
        self._unified = (root / "cgroup.controllers").exists()

    def _file(self, controller: str, unified: str, separate: str) -> Path:
        if self._unified:
            return self._root / self._path / unified
        return self._root / controller / self._path / separate

    @property
    def _memory(self) -> Path:
        return self._file("memory", "memory.max", "memory.limit_in_bytes")

    @property
    def _swap(self) -> Path:
        """Beside memory, or memory and swap together."""
        return self._file("memory", "memory.swap.max", "memory.memsw.limit_in_bytes")

    @property
    def _pids(self) -> Path:
        return self._file("pids", "pids.max", "pids.max")

    def make(self) -> None:
        """Have it there. Where the kernel lacks one of the controllers, what it would bound stays unbounded."""
        if self._unified:
            for controller in ("memory", "pids", "cpu"):
                _try(self._root / "cgroup.subtree_control", f"+{controller}")
            (self._root / self._path).mkdir(parents=True, exist_ok=True)
            return
        for controller in ("memory", "pids", "cpu"):
            if (self._root / controller).is_dir():
                (self._root / controller / self._path).mkdir(parents=True, exist_ok=True)

    def limits(self) -> BuildLimits | None:
        """What bounds it; 0 for what is unbounded, None where neither is bounded or nobody can tell."""
        try:
            memory, pids = _number(self._memory), _number(self._pids)
        except OSError:
            return None
        memory = None if memory is None or memory >= UNLIMITED_BYTES else memory
        return BuildLimits((memory or 0) // MIB, pids or 0) if memory or pids else None

    def bound(self, limits: BuildLimits) -> None:
        self._memory.write_text(str(limits.memory_mib * MIB))
        # in the old version both together, and a little above: it counts only when the limit of memory is met first
        _try(self._swap, "0" if self._unified else str((limits.memory_mib + 1) * MIB))
        self._pids.write_text(str(limits.pids))

    def step_back(self) -> None:
        """Let others go first where the processors are short. Only of a group beside theirs: among the containers of
        one engine a build with a smaller share would wait for ever for apps that compute."""
        _try(self._file("cpu", "cpu.weight", "cpu.shares"), str(int(CPU_SHARE * (100 if self._unified else 1024))))

    def unbound(self) -> None:
        """As the engine had made it."""
        none = "max" if self._unified else "-1"
        _try(self._swap, none)
        _try(self._memory, none)
        _try(self._pids, "max")

    def settable(self) -> bool:
        """Whether this process may make and bound it."""
        return all(os.access(_nearest(file), os.W_OK) for file in (self._memory, self._pids))

    def processes(self) -> int:
        """How many there are below it now; 0 where nobody can tell."""
        try:
            return int(self._file("pids", "pids.current", "pids.current").read_text())
        except (OSError, ValueError):
            return 0

    def shortages(self) -> int:
        """Grows when memory was short: processes killed for it; in the old version, times that the limit was met."""
        try:
            if not self._unified:
                return int((self._memory.parent / "memory.failcnt").read_text())
            text = (self._root / self._path / "memory.events").read_text()
        except (OSError, ValueError):
            return 0
        found = re.search(r"^oom_kill (\d+)$", text, re.MULTILINE)
        return int(found[1]) if found else 0


@dataclass(frozen=True)
class BuildGroup:
    """Where the builds of this worker run."""

    parent: str | None = None
    """What BuildKit is to be told; None: nothing."""
    group: ControlGroup | None = None
    limits: BuildLimits | None = None
    """What we put in force; None: what is in force is not ours to change."""
    shared: bool = False
    """Whether builds of others run in it too."""
    missing: str | None = None
    """Why builds are not bounded, in half a sentence."""

    def in_force(self) -> BuildLimits | None:
        return self.limits or (self.group.limits() if self.group is not None else None)


def choose(info: Mapping[str, Any], settings: BuildSettings, *, buildx: bool, root: Path = ROOT) -> BuildGroup:
    """The way that is possible here; nothing is changed yet (`build_watch.Bounds` does that).

    *info*: the engine's description of itself; *buildx*: whether that builds.
    """
    if in_container():
        return BuildGroup(missing="the worker runs in a container, from which control groups cannot be set")
    if _is_remote(engine_address().url):
        return BuildGroup(missing="the engine runs on another machine")
    limits = BuildLimits(settings.memory_mib or int(info.get("MemTotal") or 0) // MIB // 2 or MIB, settings.pids)
    if buildx and _major(info) >= 23:
        by_owner = ControlGroup(SLICE, root)
        if by_owner.limits() is not None:
            return BuildGroup(parent=SLICE, group=by_owner)
        return _own(ControlGroup(OWN, root), limits)
    return _shared(info, ControlGroup(ENGINES_OWN, root), limits, buildx=buildx)


def _own(group: ControlGroup, limits: BuildLimits) -> BuildGroup:
    if not group.settable():
        return BuildGroup(missing=NOT_SETTABLE)
    return BuildGroup(parent=f"/{OWN}", group=group, limits=limits)


def _shared(info: Mapping[str, Any], group: ControlGroup, limits: BuildLimits, *, buildx: bool) -> BuildGroup:
    older = "the docker command line has no buildx" if _major(info) >= 23 else "Docker is older than 23"
    if info.get("CgroupDriver") != "cgroupfs":
        return BuildGroup(missing=f"{older}, and systemd manages its control groups")
    if not group.settable():
        return BuildGroup(missing=NOT_SETTABLE)
    return BuildGroup(group=group, limits=limits, shared=True)


def _major(info: Mapping[str, Any]) -> int:
    found = re.match(r"\d+", str(info.get("ServerVersion") or ""))
    return int(found[0]) if found else 0


def _is_remote(host: str) -> bool:
    return bool(host) and not host.startswith("unix://")


def _nearest(file: Path) -> Path:
    return next((place for place in (file, *file.parents) if place.exists()), file)


def _number(file: Path) -> int | None:
    """None: no limit."""
    text = file.read_text().strip()
    return int(text) if text.lstrip("-").isdecimal() and int(text) >= 0 else None


def _try(file: Path, text: str) -> None:
    """Where the kernel was built without this, the rest holds all the same."""
    try:
        file.write_text(text)
    except OSError as problem:
        logger.debug("control group", extra={"action": "group_unset", "file": str(file), "problem": str(problem)})
