"""One installation for the whole suite, with a local CPU worker and a simulated GPU worker."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.world import Portal, World


@pytest.fixture(scope="session")
def world() -> Iterator[World]:
    # Not pytest's own directories: those are closed to others, and the database's account passes through.
    with tempfile.TemporaryDirectory(prefix="openface-world-") as directory:
        path = Path(directory)
        path.chmod(0o711)
        world = World(path)
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


@pytest.fixture(scope="session")
def owner(world: World) -> Portal:
    return world.portal("owner")


@pytest.fixture(autouse=True)
def show_what_programs_said(world: World, request: pytest.FixtureRequest) -> Iterator[None]:
    failed_before = request.session.testsfailed
    yield
    if request.session.testsfailed > failed_before:
        print(world.log_tail(100))
