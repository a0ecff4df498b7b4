"""A worker that runs in a container: it reaches its apps, an upgrade costs them nothing, and revoked it stays quiet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from gpu_worker.containers import ContainerEngine
from gpu_worker.journal import JobRecord
from tests.gpu_worker.conftest import ask, remove_images
from tests.gpu_worker.containerised import WorkerContainer
from tests.gpu_worker.control_plane import ControlPlane, Lease
from tests.gpu_worker.images import container_files
from tests.gpu_worker.worker import eventually, make_repository

pytestmark = pytest.mark.docker


@pytest.fixture
def engine() -> Iterator[Any]:
    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture
def network(engine: Any) -> Iterator[Any]:
    """A network of this test's own: its gateway is where the control plane listens."""
    made = engine.networks.create("openface-tests-worker", driver="bridge", check_duplicate=False)
    made.reload()
    yield made
    made.remove()


@pytest.fixture
def plane(network: Any, tmp_path: Path) -> Iterator[ControlPlane]:
    plane = ControlPlane(tmp_path / "git", host=network.attrs["IPAM"]["Config"][0]["Gateway"])
    plane.start()
    yield plane
    plane.stop()
    assert plane.wire_faults == []


@pytest.fixture
def worker(engine: Any, network: Any, plane: ControlPlane, tmp_path: Path) -> Iterator[WorkerContainer]:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    worker = WorkerContainer(engine, plane, network, secrets)
    worker.put_token()
    yield worker
    worker.clear_away()
    remove_what_is_left(plane)


def remove_what_is_left(plane: ControlPlane) -> None:
    if plane.worker_id is None:
        return
    executor = ContainerEngine(plane.worker_id)
    for found in executor.inventory():
        runtime = executor.find(JobRecord(found.facts))
        if runtime is not None:
            runtime.remove()
    executor.remove_stray_networks(set())
    executor.volumes.remove_all()
    remove_images(plane.worker_id)


def serving(plane: ControlPlane) -> Lease:
    job = plane.queue_job("box", make_repository(plane.git_root, "box", container_files()))
    eventually(lambda: plane.state(job) in ("running", "failed"), what="running")
    lease = plane.lease_of(job)
    assert lease is not None
    assert lease.state == "running", (lease.events, lease.logs)
    return lease


def containers_of(engine: Any, lease: Lease) -> list[str]:
    return [one.id for one in engine.containers.list(filters={"label": f"openface.lease={lease.id}"})]


def served(worker: WorkerContainer, lease: Lease) -> bool:
    try:
        return bool(ask(worker, lease.id, "/index.html") == (200, b"hello from a container"))
    except OSError:
        return False  # between two workers nobody listens


def test_it_serves_and_an_upgrade_costs_its_apps_nothing(
    plane: ControlPlane, worker: WorkerContainer, engine: Any
) -> None:
    worker.start()
    lease = serving(plane)
    assert served(worker, lease)
    before = containers_of(engine, lease)
    assert json.loads(worker.run("status", "--json"))["answers"] is True

    worker.remove()
    sessions = len(plane.registers)
    worker.start()

    eventually(lambda: len(plane.registers) > sessions, what="register")
    eventually(lambda: served(worker, lease), what="the app under the new worker")
    assert containers_of(engine, lease) == before
    assert lease.moves() == ["building", "starting", "running"]
    plane.stop_job(lease.claim["id"])
    eventually(lambda: lease.cleared, what="clearing")
    assert engine.networks.list(filters={"label": f"openface.lease={lease.id}"}) == []


def test_revoked_it_makes_no_request_until_there_is_a_new_token(
    plane: ControlPlane, worker: WorkerContainer, engine: Any
) -> None:
    worker.start()
    eventually(lambda: plane.beats, what="a heartbeat")
    plane.revoked = True
    eventually(lambda: "Put a new enrollment token in place" in worker.log(), what="the sentence")
    asked = plane.requests

    worker.container.restart(timeout=10)  # as after a restart of the machine

    eventually(lambda: worker.log().count("Put a new enrollment token in place") == 2, what="the sentence again")
    worker.container.reload()
    assert (worker.container.status, plane.requests) == ("running", asked)
    sessions = len(plane.registers)
    worker.put_token()
    eventually(lambda: len(plane.registers) > sessions, what="register with the new token")
