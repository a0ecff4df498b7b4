"""How an app is that a restarted worker finds: told once, because it may have changed while nobody looked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import docker
import pytest

from tests.gpu_worker.control_plane import ControlPlane, Lease
from tests.gpu_worker.images import DOCKERFILE, container_files
from tests.gpu_worker.worker import WEB_APP, WorkerProcess, eventually, make_repository

Make = Callable[..., WorkerProcess]


def running(plane: ControlPlane, files: dict[str, Any], **claim: str) -> Lease:
    job = plane.queue_job("box", make_repository(plane.git_root, "box", files), **claim)
    eventually(lambda: plane.state(job) == "running", what="running")
    lease = plane.lease_of(job)
    assert lease is not None
    return lease


def judgements(lease: Lease) -> list[tuple[bool, str | None]]:
    return [(event["healthy"], event.get("reason")) for event in lease.events if event["kind"] == "health"]


def test_an_adopted_app_that_is_well_is_told_to_be_well_once(plane: ControlPlane, make_worker: Make) -> None:
    worker = make_worker().start()
    lease = running(plane, {"app.py": WEB_APP}, app_file="app.py")

    worker.kill()
    worker.start()
    eventually(lambda: judgements(lease) == [(True, None)], what="how it is")
    worker.kill()
    worker.start()
    eventually(lambda: judgements(lease) == [(True, None)] * 2, what="how it is after the second restart")


@pytest.fixture
def container(plane: ControlPlane, make_worker: Make) -> Iterator[tuple[WorkerProcess, Lease, Any]]:
    """A worker, its running app's lease, and the container."""
    worker = make_worker(executor="docker").start()
    lease = running(plane, container_files())
    engine = docker.from_env()
    [found] = engine.containers.list(filters={"label": f"openface.lease={lease.id}"})
    yield worker, lease, found
    engine.close()


@pytest.mark.docker
def test_what_changed_while_the_worker_was_away_is_told(container: tuple[WorkerProcess, Lease, Any]) -> None:
    worker, lease, app = container
    worker.kill()
    app.pause()
    worker.start()
    eventually(lambda: judgements(lease) == [(False, "paused")], what="that it is paused")

    worker.kill()
    app.unpause()
    worker.start()

    eventually(lambda: judgements(lease) == [(False, "paused"), (True, None)], what="that it is well")


@pytest.mark.docker
def test_another_ailment_is_news_although_the_app_was_ill_before(plane: ControlPlane, make_worker: Make) -> None:
    make_worker(executor="docker").start()
    serves = "busybox httpd -f -v -p 0.0.0.0:7860 -h /www"
    closes = DOCKERFILE.replace(f"exec {serves}", f"{serves} & echo $! > /www/pid; exec sleep 600")
    lease = running(plane, container_files(Dockerfile=closes))
    engine = docker.from_env()
    [app] = engine.containers.list(filters={"label": f"openface.lease={lease.id}"})

    assert app.exec_run(["sh", "-c", "kill $(cat /www/pid)"]).exit_code == 0
    eventually(lambda: judgements(lease) == [(False, "no_answer")], what="that nothing answers")
    app.pause()
    eventually(lambda: judgements(lease)[1:] == [(False, "paused")], what="that it is paused")
    app.unpause()

    eventually(lambda: judgements(lease)[2:] == [(False, "no_answer")], what="that nothing answers, again")
    engine.close()
