"""A container gets the GPUs that its job was given and no other, on a real engine with a stand-in for the toolkit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.gpu_worker.conftest import ask, clear_away
from tests.gpu_worker.control_plane import ControlPlane, Lease
from tests.gpu_worker.engines import GpuEngine, skip_unless_possible
from tests.gpu_worker.images import BUSYBOX, container_files
from tests.gpu_worker.worker import WorkerProcess, eventually, make_repository

pytestmark = pytest.mark.docker

FIRST = "uuid=GPU-aaaa name=NVIDIA_RTX_3060 total=12288 free=12000 mig=0"
SECOND = "uuid=GPU-bbbb name=NVIDIA_RTX_4090 total=24564 free=24000 mig=0"
UNKNOWN = "uuid=GPU-cccc name=NVIDIA_RTX_2060 total=6144 free=6000 mig=0"  # to the toolkit
# Like every image of NVIDIA's it asks for all GPUs. What it can see of them it serves.
SHOWS_ITS_GPUS = """\
FROM scratch
COPY busybox /bin/busybox
COPY index.html /www/index.html
ENV NVIDIA_VISIBLE_DEVICES=all
CMD ["/bin/busybox", "sh", "-c", "nvidia-smi -L > /www/gpus.txt 2>&1; exec busybox httpd -f -p 0.0.0.0:7860 -h /www"]
"""


@pytest.fixture(scope="module")
def engine() -> Iterator[GpuEngine]:
    skip_unless_possible()
    with tempfile.TemporaryDirectory(prefix="openface-gpus-", ignore_cleanup_errors=True) as directory:
        engine = GpuEngine(Path(directory))
        engine.has([FIRST, SECOND], driver=[FIRST, SECOND, UNKNOWN])
        with engine:
            yield engine


@dataclass(frozen=True)
class Ran:
    """A worker on that engine, and one job of each kind: they start side by side, so they cost the time of one."""

    plane: ControlPlane
    worker: WorkerProcess
    first: Lease
    second: Lease
    unknown: Lease
    without: Lease


@pytest.fixture(scope="module")
def ran(engine: GpuEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    directory = tmp_path_factory.mktemp("worker")
    plane = ControlPlane(directory / "git")
    plane.start()
    settings = {**engine.environment, "MAX_GPU_JOBS": "3", "GPU_WATCH_SECONDS": "1"}
    worker = WorkerProcess(plane, directory, executor="docker", settings=settings)
    revision = make_repository(plane.git_root, "shows", container_files(Dockerfile=SHOWS_ITS_GPUS))
    jobs = [plane.queue_job("shows", revision, kind="gpu", gpus=[f"GPU-{name * 4}"]) for name in "abc"]
    jobs.append(plane.queue_job("shows", revision, environment={"NVIDIA_VISIBLE_DEVICES": "all"}))
    with pytest.MonkeyPatch.context() as surroundings:
        surroundings.setenv("DOCKER_HOST", engine.host)  # for what is cleared away
        try:
            worker.start()
            states = {"running", "failed"}
            eventually(lambda: {plane.state(job) for job in jobs} <= states, seconds=60, what="all four")
            leases = [plane.lease_of(job) for job in jobs]
            yield Ran(plane, worker, *[lease for lease in leases if lease is not None])
        finally:
            clear_away(worker)
            plane.stop()
    assert plane.wire_faults == []


def container_of(engine: GpuEngine, lease: Lease) -> dict[str, Any]:
    """What the engine knows of a lease's container."""
    client = docker.DockerClient(base_url=engine.host)
    try:
        [container] = client.containers.list(filters={"label": f"openface.lease={lease.id}"})
        attributes: dict[str, Any] = container.attrs
        return attributes
    finally:
        client.close()


def examined(engine: GpuEngine, tmp_path: Path, *flags: str) -> dict[str, list[dict[str, Any]]]:
    """What the doctor says on a machine with this engine, by the names of the checks."""
    environment = {**os.environ, **engine.environment, "PATH": f"{engine.toolkit}/bin:{os.environ['PATH']}"}
    command = [sys.executable, "-m", "gpu_worker", "doctor", "--json", "--data-dir", str(tmp_path), *flags]
    done = subprocess.run(command, env=environment, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    checks: dict[str, list[dict[str, Any]]] = {}
    for check in json.loads(done.stdout)["checks"]:
        checks.setdefault(check["check"], []).append(check)
    return checks


def test_a_container_sees_only_its_gpu(ran: Ran) -> None:
    assert [gpu["uuid"] for gpu in ran.plane.registers[-1]["gpus"]] == ["GPU-aaaa", "GPU-bbbb", "GPU-cccc"]

    assert ran.second.state == "running", ran.second.events
    assert ask(ran.worker, ran.second.id, "/gpus.txt") == (200, b"GPU 0: NVIDIA RTX 4090 (UUID: GPU-bbbb)\n")


def test_a_job_without_a_gpu_sees_none_whatever_its_image_asks_for(ran: Ran) -> None:
    assert ran.without.state == "running", ran.without.events
    status, shown = ask(ran.worker, ran.without.id, "/gpus.txt")

    assert (status, b"GPU" in shown) == (200, False)
    assert b"not found" in shown


def test_a_gpu_that_the_toolkit_does_not_know_is_a_sentence(ran: Ran) -> None:
    assert (ran.unknown.state, ran.unknown.events[-1]["reason"]) == ("failed", "start_failed")
    assert ran.unknown.events[-1]["detail"].startswith("The NVIDIA Container Toolkit does not know the GPU GPU-cccc")


def test_what_runs_in_a_jobs_container_is_the_jobs_and_all_else_is_foreign(ran: Ran, engine: GpuEngine) -> None:
    inside = container_of(engine, ran.second)["State"]["Pid"]

    engine.has([FIRST, SECOND], driver=[FIRST, f"{SECOND} procs={inside}:3072,{os.getpid()}:512"])

    shared = eventually(lambda: next((gpu for gpu in ran.plane.beats[-1]["gpus"] if gpu["ours"]), None), what="its use")
    assert shared["ours"] == [{"lease": ran.second.id, "mib": 3072}]
    assert [(other["pid"], other["mib"]) for other in shared["foreign"]] == [(os.getpid(), 512)]


def test_a_gpu_that_is_lost_inside_a_running_container_is_told(ran: Ran, engine: GpuEngine) -> None:
    root = Path("/proc", str(container_of(engine, ran.first)["State"]["Pid"]), "root")

    (root / "etc/stub-nvml.txt").unlink()  # as a reload of systemd takes the device away

    eventually(lambda: ran.first.kinds()[-1] == "health", what="the news")
    assert (ran.first.events[-1]["healthy"], ran.first.events[-1]["reason"]) == (False, "gpu_lost")
    assert "a restart of the app brings it back" in ran.first.events[-1]["detail"]


def test_the_doctor_sees_the_toolkit_and_tries_each_gpu(engine: GpuEngine, tmp_path: Path) -> None:
    engine.has([FIRST], driver=[FIRST, SECOND])
    with tarfile.open(tmp_path / "image.tar", "w") as image:
        image.add(BUSYBOX, "bin/busybox")
    client = docker.DockerClient(base_url=engine.host)
    client.api.import_image(src=str(tmp_path / "image.tar"), repository="trial")
    client.close()

    checks = examined(engine, tmp_path, "--test-image", "trial")

    assert [check["ok"] for name in ("driver", "gpu", "gpu_runtime") for check in checks[name]] == [True] * 3
    assert checks["default_runtime"][0]["ok"] is None, "images may ask for all GPUs there"
    first, second = checks["device_test"]
    assert (first["ok"], first["detail"]) == (True, "NVIDIA RTX 3060 (GPU-aaaa): a container sees it, and no other")
    assert (second["ok"], "does not know the GPU GPU-bbbb" in second["detail"]) == (False, True)
