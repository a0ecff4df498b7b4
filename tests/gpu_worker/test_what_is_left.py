"""After the end of a worker its owner still learns why it ended, and gets back what is left of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import docker
import pytest

from tests.gpu_worker.commands_of_owner import Command
from tests.gpu_worker.control_plane import ControlPlane
from tests.gpu_worker.worker import WorkerProcess, eventually

Make = Callable[..., WorkerProcess]


@pytest.fixture
def engine() -> Iterator[Any]:
    client = docker.from_env()
    yield client
    client.close()


def test_the_status_shows_where_the_running_worker_calls_not_what_was_edited_since(
    plane: ControlPlane, make_worker: Make, command: Command
) -> None:
    worker = make_worker().start()
    eventually(lambda: command(worker, "status")["answers"], what="an answer")
    worker.environment["OPENFACE_URL"] = "http://elsewhere.example:8090"

    status = command(worker, "status")

    assert (status["control_plane"], status["control_plane_in_settings"]) == (
        plane.url,
        "http://elsewhere.example:8090",
    )


def test_the_status_says_why_a_worker_ended(plane: ControlPlane, make_worker: Make, command: Command) -> None:
    worker = make_worker().start()
    plane.revoked = True
    assert worker.wait() == 78

    status = command(worker, "status")

    assert (status["running"], status["worker_id"]) == (False, None)
    assert "revoked" in str(status["ended_because"])


@pytest.mark.docker
def test_what_a_revoked_worker_left_goes_when_its_owner_says_so(
    plane: ControlPlane, make_worker: Make, command: Command, engine: Any
) -> None:
    worker = make_worker(executor="docker").start()
    engine.volumes.create(
        f"openface-tests-{plane.worker_id}", labels={"openface.worker": plane.worker_id, "openface.role": "data"}
    )
    plane.revoked = True
    assert worker.wait() == 78
    own = {"label": f"openface.worker={plane.worker_id}"}

    command(worker, "leave", code=2)  # nobody has said what becomes of the data
    assert len(engine.volumes.list(filters=own)) == 1
    assert command(worker, "prune", "--all")["removed"] == []
    answer = command(worker, "leave", "--delete-data")

    assert (answer["worker_id"], answer["removed_volumes"]) == (plane.worker_id, 1)
    assert engine.volumes.list(filters=own) == []
