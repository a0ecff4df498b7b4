"""A container gets the GPUs that its job was given and no other, on a real engine with a stand-in for the toolkit."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.gpu_worker.conftest import ask
from tests.gpu_worker.control_plane import ControlPlane, Lease
from tests.gpu_worker.gpu_engine import GpuEngine, skip_unless_possible
from tests.gpu_worker.images import container_files
from tests.gpu_worker.worker import WorkerProcess, eventually, make_repository

pytestmark = pytest.mark.docker
Make = Callable[..., WorkerProcess]

FIRST = "uuid=GPU-aaaa name=NVIDIA_RTX_3060 total=12288 free=12000 mig=0"
SECOND = "uuid=GPU-bbbb name=NVIDIA_RTX_4090 total=24564 free=24000 mig=0"
# Like every image of NVIDIA's it asks for all GPUs. What it can see of them it serves.
SHOWS_ITS_GPUS = """\
FROM scratch
COPY busybox /bin/busybox
COPY index.html /www/index.html
ENV NVIDIA_VISIBLE_DEVICES=all
CMD ["/bin/busybox", "sh", "-c", "nvidia-smi -L > /www/gpus.txt 2>&1; exec busybox httpd -f -p 0.0.0.0:7860 -h /www"]
"""


@pytest.fixture(scope="module")
def the_engine() -> Iterator[GpuEngine]:
    skip_unless_possible()
    with tempfile.TemporaryDirectory(prefix="openface-gpus-", ignore_cleanup_errors=True) as directory:
        engine = GpuEngine(Path(directory))
        engine.has([FIRST, SECOND])
        with engine.running():
            yield engine


@pytest.fixture
def engine(the_engine: GpuEngine, monkeypatch: pytest.MonkeyPatch) -> GpuEngine:
    monkeypatch.setenv("DOCKER_HOST", the_engine.host)  # for what the fixtures clear away
    the_engine.has([FIRST, SECOND])
    return the_engine


def started(plane: ControlPlane, **changes: object) -> Lease:
    revision = make_repository(plane.git_root, "shows", container_files(Dockerfile=SHOWS_ITS_GPUS))
    job = plane.queue_job("shows", revision, **changes)
    eventually(lambda: plane.state(job) in ("running", "failed"), what="running")
    lease = plane.lease_of(job)
    assert lease is not None
    return lease


def test_a_container_sees_only_its_gpu(plane: ControlPlane, make_worker: Make, engine: GpuEngine) -> None:
    worker = make_worker(executor="docker", **engine.environment).start()
    assert [gpu["uuid"] for gpu in plane.registers[-1]["gpus"]] == ["GPU-aaaa", "GPU-bbbb"]

    lease = started(plane, kind="gpu", gpus=["GPU-bbbb"])

    assert lease.state == "running", lease.events
    assert ask(worker, lease.id, "/gpus.txt") == (200, b"GPU 0: NVIDIA RTX 4090 (UUID: GPU-bbbb)\n")


def test_a_job_without_a_gpu_sees_none_whatever_its_image_asks_for(
    plane: ControlPlane, make_worker: Make, engine: GpuEngine
) -> None:
    worker = make_worker(executor="docker", **engine.environment).start()

    lease = started(plane, environment={"NVIDIA_VISIBLE_DEVICES": "all"})

    assert lease.state == "running", lease.events
    status, shown = ask(worker, lease.id, "/gpus.txt")
    assert (status, b"GPU" in shown) == (200, False)
    assert b"not found" in shown


def test_a_gpu_that_the_toolkit_does_not_know_is_a_sentence(
    plane: ControlPlane, make_worker: Make, engine: GpuEngine
) -> None:
    engine.has([FIRST], driver=[FIRST, SECOND])
    make_worker(executor="docker", **engine.environment).start()

    lease = started(plane, kind="gpu", gpus=["GPU-bbbb"])

    assert (lease.state, lease.events[-1]["reason"]) == ("failed", "start_failed")
    assert lease.events[-1]["detail"].startswith("The NVIDIA Container Toolkit does not know the GPU GPU-bbbb")
