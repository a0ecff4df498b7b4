"""The container engine is restarted under running apps: they start again by themselves, and their owner reads why."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import docker
import pytest

from tests.gpu_worker.conftest import ask
from tests.gpu_worker.control_plane import ControlPlane, Lease
from tests.gpu_worker.engines import OwnEngine, skip_unless_possible
from tests.gpu_worker.images import DOCKERFILE, container_files
from tests.gpu_worker.worker import WorkerProcess, eventually, make_repository

pytestmark = pytest.mark.docker
Make = Callable[..., WorkerProcess]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnEngine]:
    skip_unless_possible()
    with OwnEngine(tmp_path_factory.mktemp("engine")) as engine:
        yield engine


@pytest.fixture
def engine(started: OwnEngine, monkeypatch: pytest.MonkeyPatch) -> OwnEngine:
    monkeypatch.setenv("DOCKER_HOST", started.host)  # for what clears away after the test
    return started


def containers_of(engine: OwnEngine, lease: Lease) -> list[str]:
    client = docker.DockerClient(base_url=engine.host)
    try:
        found = client.containers.list(all=True, filters={"label": f"openface.lease={lease.id}"})
        return [str(one.id) for one in found]
    finally:
        client.close()


def claimed(plane: ControlPlane, repo: str, dockerfile: str, **changes: str) -> Lease:
    revision = make_repository(plane.git_root, repo, container_files(Dockerfile=dockerfile))
    job = plane.queue_job(repo, revision, **changes)
    eventually(lambda: plane.state(job) in ("running", "failed"), what="running")
    lease = plane.lease_of(job)
    assert lease is not None
    assert lease.state == "running", (lease.events, lease.logs)
    return lease


@pytest.fixture
def space(engine: OwnEngine, make_worker: Make, plane: ControlPlane) -> tuple[WorkerProcess, Lease]:
    worker = make_worker(executor="docker", DOCKER_HOST=engine.host).start()
    return worker, claimed(plane, "box", DOCKERFILE)


def test_an_app_is_started_again_after_a_restart_of_the_engine_and_a_batch_job_is_not(
    plane: ControlPlane, engine: OwnEngine, space: tuple[WorkerProcess, Lease]
) -> None:
    worker, lease = space
    counting = DOCKERFILE.replace(
        "echo serving; exec busybox httpd -f -v -p 0.0.0.0:7860 -h /www", "echo one; sleep 60"
    )
    batch = claimed(plane, "sum", counting, mode="batch")
    [before] = containers_of(engine, lease)

    engine.stop()
    engine.start()

    eventually(lambda: lease.moves()[3:] == ["starting", "running"], what="running again")
    assert lease.events[3]["reason"] == "engine_restarted"
    assert containers_of(engine, lease) == [before]
    assert "The container engine was restarted, which ended the app." in lease.logs["system"]
    eventually(lambda: ask(worker, lease.id, "/index.html") == (200, b"hello from a container"), what="the way to it")
    eventually(lambda: lease.logs["run"].count("serving\n") == 2, what="the log of the second start")
    eventually(lambda: batch.state == "failed", what="the end of the batch job")
    assert "The container engine was restarted, which ended the app." in batch.logs["system"]
    assert batch.logs["run"] == "one\n"


def test_a_restart_of_engine_and_worker_together_is_not_the_apps_end(
    plane: ControlPlane, engine: OwnEngine, space: tuple[WorkerProcess, Lease]
) -> None:
    worker, lease = space
    [before] = containers_of(engine, lease)

    worker.terminate()
    engine.stop()
    engine.start()
    worker.start()

    eventually(lambda: lease.moves()[3:] == ["starting", "running"], what="running again")
    assert lease.events[3]["reason"] == "engine_restarted"
    assert containers_of(engine, lease) == [before]
    eventually(lambda: lease.logs["run"].count("serving\n") == 2, what="the log of the second start")
