"""Apps that take what they can get: contained, told in a sentence, and neither the worker nor a neighbour suffers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.gpu_worker.conftest import ask
from tests.gpu_worker.control_plane import ControlPlane, Lease
from tests.gpu_worker.images import DOCKERFILE, container_files
from tests.gpu_worker.worker import WorkerProcess, eventually, make_repository

pytestmark = pytest.mark.docker
Make = Callable[..., WorkerProcess]

# The worker's and the engine's limits hold them; these keep them from the other tests of this machine as well.
SMALL = {"memory_mib": 48, "cpus": 0.25, "pids": 40}
HOSTILE = {
    "forks": "while :; do sleep 99 & done",
    "hog": "dd if=/dev/zero of=/dev/null bs=200M",
    "flood": "yes 0123456789",
    "deaf": "trap '' TERM; while :; do sleep 1; done",
}


def serving_beside(command: str) -> str:
    """The Dockerfile of a Space that answers for two seconds, and then does *command* too."""
    return DOCKERFILE.replace("echo serving; exec", f"(sleep 2; {command}) & trap '' TERM;")


@pytest.fixture
def worker(make_worker: Make) -> WorkerProcess:
    return make_worker(executor="docker", MAX_CPU_JOBS="8").start()


def running(plane: ControlPlane, name: str, dockerfile: str) -> Lease:
    revision = make_repository(plane.git_root, name, container_files(Dockerfile=dockerfile))
    job = plane.queue_job(name, revision, limits=SMALL)
    eventually(lambda: plane.state(job) in ("running", "failed"), what="running")
    lease = plane.lease_of(job)
    assert lease is not None
    assert lease.state == "running", (lease.events, lease.logs)
    return lease


def test_hostile_apps_are_contained_told_and_stopped(plane: ControlPlane, worker: WorkerProcess) -> None:
    neighbour = running(plane, "neighbour", DOCKERFILE)
    hostile = {name: running(plane, name, serving_beside(command)) for name, command in HOSTILE.items()}

    for name, news in {"hog": "Out of memory: a process", "forks": "processes and threads"}.items():
        log = hostile[name].logs
        eventually(lambda log=log, news=news: news in log["system"], seconds=90, what=f"the news of {name}")  # type: ignore[misc]  # bound now
    eventually(lambda: "writes faster than" in hostile["flood"].logs["run"], what="the line about what is skipped")
    beats = len(plane.beats)
    assert ask(worker, neighbour.id, "/index.html")[0] == 200
    eventually(lambda: len(plane.beats) > beats + 3, what="heartbeats")

    for lease in hostile.values():
        plane.stop_job(lease.claim["id"], grace_s=0.5)
    for name, lease in hostile.items():
        eventually(lambda lease=lease: lease.cleared, what=f"the end of {name}")  # type: ignore[misc]  # bound now
        assert lease.kinds()[-1] == "stopped"
    assert neighbour.kinds() == ["building", "starting", "running"], "the neighbour never noticed"
    assert worker.process is not None
    assert worker.process.poll() is None
