"""What the code imports is in its own list of requirements: the server's and the worker's are installed apart."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent.parent
ROOMS = {
    "control-plane": ("openface", "runtime_proxy", "workers", "spaces", "jobs"),
    "worker": ("gpu_worker",),
}
OURS = {name for rooms in ROOMS.values() for name in rooms}


def imported(room: str) -> Iterator[tuple[str, Path]]:
    """Yield the names of top-level packages that a room imports at run time, and where."""
    for path in (PROJECT / room).rglob("*.py"):
        for node in run_time_nodes(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from ((alias.name.split(".")[0], path) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module.split(".")[0], path


def run_time_nodes(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from run_time_nodes(child)


def named(requirement: str) -> list[str]:
    """Return the distributions that a line asks for: psycopg[pool] stands for psycopg and psycopg-pool."""
    parts = re.match(r"([\w.-]+)(?:\[([^\]]*)\])?", requirement)
    assert parts, requirement
    name = normal(parts[1])
    return [name, *(f"{name}-{normal(extra)}" for extra in (parts[2] or "").split(",") if extra)]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("extra", ROOMS)
def test_every_import_has_its_requirement(extra: str) -> None:
    with (PROJECT / "pyproject.toml").open("rb") as file:
        wanted = tomllib.load(file)["project"]["optional-dependencies"][extra]
    required = {name for line in wanted for name in named(line)}
    distributions = packages_distributions()

    missing = {
        f"{name} in {path.relative_to(PROJECT)}"
        for room in ROOMS[extra]
        for name, path in imported(room)
        if name not in OURS
        and name not in sys.stdlib_module_names
        and not required & {normal(distribution) for distribution in distributions.get(name, [])}
    }

    assert missing == set()


@pytest.mark.parametrize("extra", ROOMS)
def test_every_requirement_is_locked_with_its_hash(extra: str) -> None:
    with (PROJECT / "pyproject.toml").open("rb") as file:
        wanted = tomllib.load(file)["project"]["optional-dependencies"][extra]
    locked = (PROJECT / "requirements" / f"{extra}.txt").read_text(encoding="utf-8")

    for line in wanted:
        name = named(line)[0]
        assert re.search(
            rf"^{re.escape(name)}(\[[^\]]*\])?==\S+( ;[^\n]*)? \\\n +--hash=sha256:", locked, re.MULTILINE
        ), name
    assert "--index-url" not in locked
    assert "--find-links" not in locked
