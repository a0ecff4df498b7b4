"""One installation for the whole suite, with a local CPU worker and a simulated GPU worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.world import Portal, World


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("world")
    _let_pass(directory)
    world = World(directory)
    try:
        world.up()
        world.machine("cpu1")
        world.machine("gpu1", local=False, gpus=2, cpus=0)
        yield world
    except BaseException:
        print(world.log_tail(200))
        raise
    finally:
        world.down()


def _let_pass(directory: Path) -> None:
    """The database's own account must reach its directory below pytest's private ones."""
    for parent in (directory, *directory.parents):
        if parent.stat().st_mode & 0o001 == 0:
            parent.chmod(parent.stat().st_mode | 0o011)


@pytest.fixture(scope="session")
def owner(world: World) -> Portal:
    return world.portal("owner")


@pytest.fixture(autouse=True)
def show_what_programs_said(world: World, request: pytest.FixtureRequest) -> Iterator[None]:
    failed_before = request.session.testsfailed
    yield
    if request.session.testsfailed > failed_before:
        print(world.log_tail(100))
