"""What goes wrong with a job in a container is told in a sentence that its owner can act on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.gpu_worker.control_plane import ControlPlane
from tests.gpu_worker.images import DOCKERFILE, container_files
from tests.gpu_worker.nvml import build_nvml_stub
from tests.gpu_worker.served import containers_of, running
from tests.gpu_worker.worker import WorkerProcess, eventually, make_repository

pytestmark = pytest.mark.docker
Make = Callable[..., WorkerProcess]


def test_a_container_removed_by_hand_is_noticed(plane: ControlPlane, make_worker: Make, engine: Any) -> None:
    revision = make_repository(plane.git_root, "box", container_files())
    make_worker(executor="docker").start()
    lease = running(plane, "box", revision)

    containers_of(engine, lease.id)[0].remove(force=True)

    eventually(lambda: lease.state == "failed", what="the failure")
    # the engine kills before it removes: whichever of the two the worker saw
    assert lease.events[-1].get("reason") == "container_lost" or lease.events[-1].get("code") == 137
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
    assert lease.events[-1]["detail"] == "The app ended with code 7. Its last line: dying"
    assert lease.logs["run"].endswith("dying\n")
    assert lease.events[-1]["log_ends"]["run"] == len(lease.logs["run"].encode())


def test_an_app_that_ends_before_it_answers_says_its_last_line_without_secrets(
    plane: ControlPlane, make_worker: Make
) -> None:
    complains = DOCKERFILE.replace("echo serving; exec busybox httpd", "echo no model for $KEY; exit 3; busybox httpd")
    revision = make_repository(plane.git_root, "early", container_files(Dockerfile=complains))
    make_worker(executor="docker").start()

    job = plane.queue_job("early", revision, secrets={"KEY": "very-secret-value"})
    eventually(lambda: plane.state(job) == "failed", what="the failure")

    lease = plane.lease_of(job)
    assert lease is not None
    assert lease.events[-1]["reason"] == "exited_before_ready"
    assert lease.events[-1]["detail"] == "The app ended with code 3. Its last line: no model for ***"


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


def test_a_repository_that_says_nothing_of_how_to_run_it_fails_with_a_sentence(
    plane: ControlPlane, make_worker: Make
) -> None:
    revision = make_repository(plane.git_root, "bare", {"app.py": "print(1)"})
    make_worker(executor="docker").start()

    job = plane.queue_job("bare", revision)
    eventually(lambda: plane.state(job) == "failed", what="the failure")

    lease = plane.lease_of(job)
    assert lease is not None
    assert lease.events[-1]["reason"] == "no_dockerfile"
    assert lease.events[-1]["detail"] == "The repository has neither a Dockerfile nor an app_file."


def test_an_app_killed_for_memory_is_told_so(plane: ControlPlane, make_worker: Make) -> None:
    hungry = DOCKERFILE.replace("exec busybox httpd -f", "busybox httpd").replace(
        '/www"]', '/www; sleep 2; exec busybox dd if=/dev/zero of=/dev/null bs=200M"]'
    )
    revision = make_repository(plane.git_root, "hungry", container_files(Dockerfile=hungry))
    make_worker(executor="docker").start()
    lease = running(plane, "hungry", revision, limits={"memory_mib": 32})

    eventually(lambda: lease.state == "failed", what="the end")

    assert (lease.events[-1]["code"], lease.events[-1]["oom_killed"]) == (137, True)
    assert "out of memory" in lease.logs["system"]


def test_a_paused_container_is_not_healthy(plane: ControlPlane, make_worker: Make, engine: Any) -> None:
    revision = make_repository(plane.git_root, "box", container_files())
    make_worker(executor="docker").start()
    lease = running(plane, "box", revision)
    [container] = containers_of(engine, lease.id)

    container.pause()
    eventually(lambda: lease.kinds()[-1] == "health", what="the report")
    assert (lease.events[-1]["healthy"], lease.events[-1]["detail"]) == (False, "paused")
    container.unpause()

    eventually(lambda: lease.events[-1].get("healthy") is True, what="the recovery")


def test_an_engine_without_gpu_support_is_explained(plane: ControlPlane, make_worker: Make, tmp_path: Path) -> None:
    gpus = tmp_path / "nvml.txt"
    gpus.write_text("uuid=GPU-aaaa name=NVIDIA_RTX total=24564 free=24000\n")
    revision = make_repository(plane.git_root, "box", container_files())
    stub = {"LD_LIBRARY_PATH": str(build_nvml_stub(tmp_path)), "STUB_NVML_FILE": str(gpus)}
    make_worker(executor="docker", **stub).start()
    assert [gpu["uuid"] for gpu in plane.registers[-1]["gpus"]] == ["GPU-aaaa"]

    job = plane.queue_job("box", revision, kind="gpu", gpus=["GPU-aaaa"])
    eventually(lambda: plane.state(job) == "failed", what="the failure")

    lease = plane.lease_of(job)
    assert lease is not None
    assert lease.events[-1]["reason"] == "start_failed"
    assert "NVIDIA Container Toolkit" in lease.events[-1]["detail"]


def test_a_gpu_that_is_gone_gives_the_job_back(plane: ControlPlane, make_worker: Make, tmp_path: Path) -> None:
    file = tmp_path / "gpus.json"
    file.write_text('{"gpus": [{"uuid": "GPU-51"}]}')
    revision = make_repository(plane.git_root, "box", container_files())
    make_worker(executor="docker", OPENFACE_SIMULATE_GPUS=str(file)).start()

    job = plane.queue_job("box", revision, kind="gpu", gpus=["GPU-gone"])
    lease = eventually(lambda: plane.lease_of(job), what="the claim")

    eventually(lambda: "declined" in lease.kinds(), what="the refusal")
    assert lease.events[-1]["reason"] == "gpu_gone"
