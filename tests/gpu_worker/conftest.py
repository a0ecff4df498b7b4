"""Fixtures of the worker's suite: a control plane with git, and a worker that is gone after the test."""

from __future__ import annotations

import hashlib
import http.client
import json
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import docker
import pytest

from gpu_worker.credentials import Credential
from gpu_worker.errors import EngineError
from gpu_worker.executor import Runtime
from gpu_worker.gateway import Gateway
from tests.conftest import docker_answers
from tests.gpu_worker.commands_of_owner import Command, make_command
from tests.gpu_worker.control_plane import ControlPlane
from tests.gpu_worker.leftovers import clear_leftovers
from tests.gpu_worker.nvml import build_nvml_stub, dismiss_lookers
from tests.gpu_worker.raw_apps import LEASE, SECRET, TOKEN, WORKER_ID, App, Serve
from tests.gpu_worker.worker import WorkerProcess, eventually


@pytest.fixture(scope="session", autouse=True)
def nothing_left_by_killed_runs(request: pytest.FixtureRequest) -> None:
    """What an earlier run left on the engine, where this one uses it."""
    if docker_answers() and any(item.get_closest_marker("docker") for item in request.session.items):
        engine = docker.from_env()
        try:
            clear_leftovers(engine, now=datetime.now(UTC))
        finally:
            engine.close()


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    plane = ControlPlane(tmp_path / "git")
    plane.start()
    yield plane
    plane.stop()
    assert plane.wire_faults == []


@pytest.fixture
def make_worker(plane: ControlPlane, tmp_path: Path) -> Iterator[Callable[..., WorkerProcess]]:
    """Makes (does not start) workers; afterwards none is left, nor anything they ran."""
    made: list[WorkerProcess] = []

    def make(*, executor: str = "process", **settings: str) -> WorkerProcess:
        directory = tmp_path / f"worker-{len(made)}"
        directory.mkdir()
        made.append(WorkerProcess(plane, directory, executor=executor, settings=settings))
        return made[-1]

    yield make
    for worker in made:
        clear_away(worker)


@pytest.fixture
def engine() -> Any:
    """The engine of this machine."""
    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """``command(worker, "pause", "--now")`` as the owner of the machine would say it; the JSON answer."""
    return make_command(monkeypatch, capsys)


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    gateway = Gateway("127.0.0.1", 0)
    gateway.start()
    gateway.identify(Credential(f"ofw_{uuid.UUID(WORKER_ID).hex}_{SECRET}", "gpu1"))
    yield gateway
    gateway.stop()


@pytest.fixture
def app(gateway: Gateway) -> Iterator[Callable[[Serve], App]]:
    """Starts an app and opens the lease's route to it."""
    apps: list[App] = []

    def start(serve: Serve) -> App:
        apps.append(App(serve))
        gateway.open(LEASE, apps[-1].address, hashlib.sha256(TOKEN.encode()).hexdigest())
        return apps[-1]

    yield start
    for one in apps:
        one.close()


def clear_away(worker: WorkerProcess) -> None:
    """Kill the worker and whatever it left, by its own marks."""
    from gpu_worker.agent import make_executor
    from gpu_worker.config import load
    from gpu_worker.containers import ContainerEngine
    from gpu_worker.journal import JobRecord

    if worker.process is not None and worker.process.poll() is None:
        worker.kill()
    if worker.plane.worker_id is None:
        return
    executor = make_executor(load(worker.environment), worker.plane.worker_id)
    for found in executor.inventory():
        runtime = executor.find(JobRecord(found.facts))
        if runtime is not None:
            eventually(partial(removed, runtime), what="removal")
    if isinstance(executor, ContainerEngine):
        executor.remove_stray_networks(set())
        executor.volumes.remove_all()
        remove_images(worker.plane.worker_id)


def removed(runtime: Runtime) -> bool:
    try:
        runtime.remove()
    except EngineError:
        return False  # the worker was killed while it removed the very same container
    return True


def remove_images(worker_id: str) -> None:
    engine = docker.from_env()
    try:
        for image in engine.images.list(filters={"label": f"openface.worker={worker_id}"}):
            engine.images.remove(str(image.id), force=True)
    finally:
        engine.close()


class Reachable(Protocol):
    """A worker of any kind whose gateway can be called."""

    plane: ControlPlane

    def address(self) -> tuple[str, int]: ...


def ask(worker: Reachable, lease: str, path: str = "/", *, token: str | None = None) -> tuple[int, Any]:
    """GET through the worker's gateway, as the data plane does; the status and the JSON body."""
    connection = http.client.HTTPConnection(*worker.address(), timeout=10)
    try:
        given = worker.plane.runtime_token(lease) if token is None else token
        connection.request("GET", f"/lease/{lease}{path}", headers={"X-OpenFace-Runtime": given})
        answer = connection.getresponse()
        body = answer.read()
        return answer.status, json.loads(body) if body.startswith(b"{") else body
    finally:
        connection.close()


@pytest.fixture(scope="module")
def library_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory with the stand-in for the driver's library."""
    yield build_nvml_stub(tmp_path_factory.mktemp("driver"))
    dismiss_lookers()
