"""A job's whole life in a container: built with BuildKit, hardened, served, stopped, removed with every trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import docker
import pytest

from tests.gpu_worker.conftest import ask
from tests.gpu_worker.control_plane import ControlPlane, Lease
from tests.gpu_worker.images import DOCKERFILE, container_files
from tests.gpu_worker.worker import WorkerProcess, eventually, make_repository

pytestmark = pytest.mark.docker
Make = Callable[..., WorkerProcess]


@pytest.fixture
def engine() -> Any:
    client = docker.from_env()
    yield client
    client.close()


def containers_of(engine: Any, lease: str) -> list[Any]:
    return list(engine.containers.list(all=True, filters={"label": f"openface.lease={lease}"}))


def running(plane: ControlPlane, repo: str, revision: str, **changes: Any) -> Lease:
    job = plane.queue_job(repo, revision, **changes)
    eventually(lambda: plane.state(job) in ("running", "failed"), what="running")
    lease = plane.lease_of(job)
    assert lease is not None
    assert lease.state == "running", (lease.events, lease.logs)
    return lease


def test_a_dockerfile_is_built_and_served(plane: ControlPlane, make_worker: Make, engine: Any) -> None:
    revision = make_repository(plane.git_root, "box", container_files())
    worker = make_worker(executor="docker").start()

    lease = running(plane, "box", revision)

    assert ask(worker, lease.id, "/index.html") == (200, b"hello from a container")
    assert "httpd" in lease.logs["build"] or "busybox" in lease.logs["build"]
    eventually(lambda: "serving\n" in lease.logs["run"], what="the app's log")
    image = engine.images.get(lease.events[-1]["image_id"])
    assert image.labels["openface.revision"] == revision


def test_a_container_is_hardened_and_sees_no_gpu(plane: ControlPlane, make_worker: Make, engine: Any) -> None:
    revision = make_repository(plane.git_root, "box", container_files())
    make_worker(executor="docker").start()

    limits = {"memory_mib": 64, "cpus": 0.5, "pids": 50}
    environment = {
        "NVIDIA_VISIBLE_DEVICES": "all",
        "CUDA_VISIBLE_DEVICES": "0",
        "NVIDIA_DISABLE_REQUIRE": "1",
        "A": "b",
    }
    lease = running(plane, "box", revision, limits=limits, environment=environment)

    [container] = containers_of(engine, lease.id)
    host = container.attrs["HostConfig"]
    assert host["CapDrop"] == ["ALL"]
    assert host["SecurityOpt"] == ["no-new-privileges:true"]
    assert host["Init"] is True
    assert (host["Memory"], host["NanoCpus"], host["PidsLimit"]) == (64 * 1024 * 1024, 500_000_000, 50)
    assert host["RestartPolicy"]["Name"] in ("", "no")
    assert not host["Binds"] and not host["PortBindings"] and not host["Privileged"] and not host["DeviceRequests"]
    assert host["LogConfig"] == {"Type": "json-file", "Config": {"max-size": "10m", "max-file": "3"}}
    inside = dict(pair.split("=", 1) for pair in container.attrs["Config"]["Env"])
    assert (inside["NVIDIA_VISIBLE_DEVICES"], inside["CUDA_VISIBLE_DEVICES"], inside["CUDA_DEVICE_ORDER"]) == (
        "void", "-1", "PCI_BUS_ID")  # fmt: skip
    assert "NVIDIA_DISABLE_REQUIRE" not in inside
    assert inside["A"] == "b"
    labels = container.labels
    assert labels["openface.worker"] == plane.worker_id
    assert labels["openface.job"] == lease.claim["id"]
    assert labels["openface.repository"] == "r-box"
    assert list(container.attrs["NetworkSettings"]["Networks"]) == [container.name]


def test_a_stop_leaves_no_container_and_no_network(plane: ControlPlane, make_worker: Make, engine: Any) -> None:
    revision = make_repository(plane.git_root, "box", container_files())
    make_worker(executor="docker").start()
    lease = running(plane, "box", revision)

    plane.stop_job(lease.claim["id"])

    eventually(lambda: lease.cleared, what="clearing")
    assert lease.kinds()[-1] == "stopped"
    assert containers_of(engine, lease.id) == []
    assert engine.networks.list(filters={"label": f"openface.lease={lease.id}"}) == []


def test_the_same_commit_starts_without_a_build(plane: ControlPlane, make_worker: Make) -> None:
    revision = make_repository(plane.git_root, "again", container_files())
    make_worker(executor="docker").start()
    first = running(plane, "again", revision)
    plane.stop_job(first.claim["id"])
    eventually(lambda: first.cleared, what="clearing")

    second = running(plane, "again", revision)

    assert "nothing to build" in second.logs["build"]
    assert second.events[-1]["image_id"] == first.events[2]["image_id"]


def test_a_container_removed_by_hand_is_noticed(plane: ControlPlane, make_worker: Make, engine: Any) -> None:
    revision = make_repository(plane.git_root, "box", container_files())
    make_worker(executor="docker").start()
    lease = running(plane, "box", revision)

    containers_of(engine, lease.id)[0].remove(force=True)

    eventually(lambda: lease.state == "failed", what="the failure")
    assert lease.events[-1]["reason"] == "container_lost"
    eventually(lambda: lease.cleared, what="clearing")


def test_an_app_that_dies_is_reported_with_its_code_and_last_words(plane: ControlPlane, make_worker: Make) -> None:
    dies = DOCKERFILE.replace("exec busybox httpd -f", "busybox httpd").replace(
        '/www"]', '/www; sleep 2; echo dying; exit 7"]'
    )
    revision = make_repository(plane.git_root, "dies", container_files(Dockerfile=dies))
    make_worker(executor="docker").start()
    lease = running(plane, "dies", revision)

    eventually(lambda: lease.state == "failed", what="the end")

    assert (lease.events[-1]["kind"], lease.events[-1]["code"], lease.events[-1]["oom_killed"]) == ("exited", 7, False)
    assert lease.logs["run"].endswith("dying\n")
    assert lease.events[-1]["log_ends"]["run"] == len(lease.logs["run"].encode())


def test_a_failing_build_says_so_and_shows_its_output(plane: ControlPlane, make_worker: Make) -> None:
    broken = DOCKERFILE.replace("EXPOSE 7860", 'RUN ["sh", "-c", "echo nearly there; exit 3"]')
    revision = make_repository(plane.git_root, "broken", container_files(Dockerfile=broken))
    make_worker(executor="docker").start()

    job = plane.queue_job("broken", revision)
    eventually(lambda: plane.state(job) == "failed", what="the failure")

    lease = plane.lease_of(job)
    assert lease is not None
    assert lease.events[-1]["reason"] == "build_failed"
    assert "nearly there" in lease.logs["build"]


def test_a_build_is_cut_by_a_stop(plane: ControlPlane, make_worker: Make) -> None:
    slow = DOCKERFILE.replace("EXPOSE 7860", 'RUN ["sh", "-c", "echo waiting; sleep 300"]')
    revision = make_repository(plane.git_root, "slow", container_files(Dockerfile=slow))
    make_worker(executor="docker").start()
    job = plane.queue_job("slow", revision)
    lease = eventually(lambda: plane.lease_of(job), what="the claim")
    eventually(lambda: "waiting" in lease.logs["build"], what="the slow step")

    plane.stop_job(job)

    eventually(lambda: lease.cleared, what="clearing")
    assert lease.kinds() == ["building", "stopped"]


def test_an_app_that_listens_on_loopback_only_gets_that_diagnosis(plane: ControlPlane, make_worker: Make) -> None:
    hidden = DOCKERFILE.replace("0.0.0.0:7860", "127.0.0.1:5000")
    revision = make_repository(plane.git_root, "hidden", container_files(Dockerfile=hidden))
    make_worker(executor="docker").start()

    job = plane.queue_job("hidden", revision, startup_timeout_s=2)
    eventually(lambda: plane.state(job) == "failed", what="the failure")

    lease = plane.lease_of(job)
    assert lease is not None
    assert lease.events[-1]["reason"] == "startup_timeout"
    assert "it listens on 127.0.0.1:5000, expected 0.0.0.0:7860" in lease.events[-1]["detail"]


@pytest.mark.parametrize(
    ("files", "app_file", "sentence"),
    [
        ({"README.md": "nothing"}, None, "The repository has neither a Dockerfile nor an app_file."),
        ({"app.py": "print(1)"}, "app.py", "The repository has only an app_file (app.py) and no Dockerfile"),
    ],
)
def test_a_repository_without_a_dockerfile_fails_with_a_sentence(
    plane: ControlPlane, make_worker: Make, files: dict[str, str], app_file: str | None, sentence: str
) -> None:
    revision = make_repository(plane.git_root, "bare", files)
    make_worker(executor="docker").start()

    job = plane.queue_job("bare", revision, app_file=app_file)
    eventually(lambda: plane.state(job) == "failed", what="the failure")

    lease = plane.lease_of(job)
    assert lease is not None
    assert lease.events[-1]["reason"] == "no_dockerfile"
    assert lease.events[-1]["detail"].startswith(sentence)
