"""A job's whole life in a container: built with BuildKit, hardened, served, stopped, removed with every trace."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.gpu_worker.conftest import ask
from tests.gpu_worker.control_plane import ControlPlane
from tests.gpu_worker.images import DOCKERFILE, container_files
from tests.gpu_worker.served import containers_of, running
from tests.gpu_worker.worker import WorkerProcess, eventually, make_repository

pytestmark = pytest.mark.docker
Make = Callable[..., WorkerProcess]


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


def test_a_job_without_limits_gets_the_workers(plane: ControlPlane, make_worker: Make, engine: Any) -> None:
    revision = make_repository(plane.git_root, "box", container_files())
    make_worker(executor="docker", JOB_MEMORY_MIB="96", JOB_PIDS="60").start()
    lease = running(plane, "box", revision, limits={})

    [container] = containers_of(engine, lease.id)
    host = container.attrs["HostConfig"]
    assert (host["Memory"], host["MemorySwap"], host["PidsLimit"]) == (96 * 1024**2, 96 * 1024**2, 60)
    assert host["NanoCpus"] == engine.info()["NCPU"] * 10**9


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
    assert "Fetching" in first.logs["build"]
    assert "Fetching" not in second.logs["build"], "nobody needs its source"
    assert second.events[-1]["image_id"] == first.events[2]["image_id"]


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


def test_a_batch_job_that_ends_well_is_complete(plane: ControlPlane, make_worker: Make) -> None:
    batch = DOCKERFILE.replace("echo serving; exec busybox httpd -f -v -p 0.0.0.0:7860 -h /www", "echo the result")
    revision = make_repository(plane.git_root, "batch", container_files(Dockerfile=batch))
    make_worker(executor="docker").start()

    job = plane.queue_job("batch", revision, mode="batch")
    eventually(lambda: plane.state(job) == "completed", what="the end")

    lease = plane.lease_of(job)
    assert lease is not None
    assert lease.kinds() == ["building", "starting", "running", "exited"]
    assert lease.logs["run"] == "the result\n"


def test_a_build_secret_stays_out_of_image_and_log(plane: ControlPlane, make_worker: Make, engine: Any) -> None:
    uses = DOCKERFILE.replace(
        "EXPOSE 7860",
        f"ENV UNIQUE={uuid.uuid4()}\n"  # or the engine's cache answers for an earlier run of this test
        'RUN --mount=type=secret,id=KEY ["sh", "-c", "cat /run/secrets/KEY; wc -c < /run/secrets/KEY > /www/size"]',
    )
    revision = make_repository(plane.git_root, "secret", container_files(Dockerfile=uses))
    worker = make_worker(executor="docker").start()

    lease = running(plane, "secret", revision, secrets={"KEY": "very-secret-value"})

    assert ask(worker, lease.id, "/size") == (200, b"17\n")
    assert "very-secret-value" not in lease.logs["build"]
    assert "***" in lease.logs["build"]
    image = engine.images.get(lease.events[-1]["image_id"])
    assert "very-secret-value" not in str(image.history()) + str(image.attrs)
    assert "very-secret-value" not in worker.log() + str(worker.journal())


def test_a_simulated_gpu_reaches_the_app_by_its_environment(
    plane: ControlPlane, make_worker: Make, engine: Any, tmp_path: Path
) -> None:
    file = tmp_path / "gpus.json"
    file.write_text('{"gpus": [{"uuid": "GPU-51", "model": "RTX 3060"}, {"uuid": "GPU-52", "model": "RTX 4090"}]}')
    revision = make_repository(plane.git_root, "box", container_files())
    make_worker(executor="docker", OPENFACE_SIMULATE_GPUS=str(file)).start()

    lease = running(plane, "box", revision, kind="gpu", gpus=["GPU-52"])

    [container] = containers_of(engine, lease.id)
    inside = dict(pair.split("=", 1) for pair in container.attrs["Config"]["Env"])
    assert inside["NVIDIA_VISIBLE_DEVICES"] == inside["CUDA_VISIBLE_DEVICES"] == "GPU-52"
    assert [gpu["model"] for gpu in json.loads(inside["OPENFACE_SIMULATED_GPUS"])] == ["RTX 4090"]
    assert not container.attrs["HostConfig"]["DeviceRequests"]
    assert lease.events[-1]["gpus"] == ["GPU-52"]
