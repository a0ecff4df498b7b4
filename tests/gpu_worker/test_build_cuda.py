"""An image that needs a newer driver than the worker has is known before its container is made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gpu_worker.cuda_requirement import Driver, Unmet, unmet
from tests.gpu_worker.builds import Build, claim, write
from tests.gpu_worker.control_plane import ControlPlane
from tests.gpu_worker.images import DOCKERFILE, container_files
from tests.gpu_worker.worker import WorkerProcess, eventually, make_repository

OLD = Driver(cuda="12.4", version="550.54.15")
# as the images of NVIDIA say it, shortened
CUDA_12_8 = "cuda>=12.8 brand=tesla,driver>=535,driver<536 brand=geforce,driver>=535,driver<536"


def test_the_sentence_names_what_is_needed_and_what_is_there() -> None:
    lacking = unmet({"NVIDIA_REQUIRE_CUDA": CUDA_12_8}, OLD)

    assert lacking is not None
    assert lacking.cuda == "12.8"
    assert lacking.sentence("gpu1", OLD) == "Its image needs CUDA 12.8 or newer; the driver of gpu1 has 12.4."


@pytest.mark.parametrize(
    ("demand", "driver"),
    [
        ("cuda>=12.4", OLD),
        ("cuda>=12.4.0", OLD),
        ("cuda>=9", Driver("12.4", None)),
        (CUDA_12_8, Driver("12.2", "535.183.01")),  # an older driver of those that promise to run newer CUDA
        ("cuda>=99", Driver(None, None)),  # not known: the toolkit will tell
        ("arch>=8.0", OLD),
        ("something odd", OLD),
        ("", OLD),
    ],
)
def test_what_holds_or_cannot_be_known_is_no_obstacle(demand: str, driver: Driver) -> None:
    assert unmet({"NVIDIA_REQUIRE_CUDA": demand}, driver) is None


def test_all_demands_of_an_image_count() -> None:
    said = {"NVIDIA_REQUIRE_CUDA": "cuda>=12.0", "NVIDIA_REQUIRE_DRIVER": "driver>=570"}

    lacking = unmet(said, OLD)

    assert lacking == Unmet("driver>=570")
    assert lacking.sentence("gpu1", OLD) == "Its image needs driver>=570; gpu1 has CUDA 12.4 and driver 550.54.15."


def test_images_from_before_there_were_demands_say_it_by_their_cuda_version() -> None:
    assert unmet({"CUDA_VERSION": "13.0.88"}, OLD) == Unmet("cuda>=13.0", cuda="13.0")
    assert unmet({"CUDA_VERSION": "13.0.88", "NVIDIA_REQUIRE_CUDA": "cuda>=12.0"}, OLD) is None


def test_an_author_who_switched_the_demands_off_is_believed() -> None:
    assert unmet({"NVIDIA_REQUIRE_CUDA": "cuda>=99", "NVIDIA_DISABLE_REQUIRE": "1"}, OLD) is None
    assert unmet({"NVIDIA_REQUIRE_CUDA": "cuda>=99", "NVIDIA_DISABLE_REQUIRE": ""}, OLD) is not None


@pytest.mark.docker
def test_a_worker_with_an_older_driver_hands_the_job_back_before_it_starts_anything(
    plane: ControlPlane, make_worker: Callable[..., WorkerProcess], tmp_path: Path
) -> None:
    machine = tmp_path / "gpus.json"
    machine.write_text('{"gpus": [{"uuid": "GPU-51"}], "cuda_version": "12.4", "driver_version": "550.54.15"}')
    demanding = DOCKERFILE.replace("EXPOSE 7860", "ENV NVIDIA_REQUIRE_CUDA=cuda>=12.8")
    revision = make_repository(plane.git_root, "newest", container_files(Dockerfile=demanding))
    make_worker(executor="docker", OPENFACE_SIMULATE_GPUS=str(machine)).start()

    job = plane.queue_job("newest", revision, kind="gpu", gpus=["GPU-51"])
    lease = eventually(lambda: plane.lease_of(job), what="the claim")
    eventually(lambda: "declined" in lease.kinds(), what="the refusal")

    told = lease.events[-1]
    assert lease.kinds() == ["building", "declined"]
    assert (told["reason"], told["cuda"]) == ("needs_cuda", "12.8")
    assert told["detail"] == "Its image needs CUDA 12.8 or newer; the driver of gpu1 has 12.4."


@pytest.mark.docker
def test_a_job_without_a_gpu_needs_no_driver(plane: ControlPlane, make_worker: Callable[..., WorkerProcess]) -> None:
    demanding = DOCKERFILE.replace("EXPOSE 7860", "ENV NVIDIA_REQUIRE_CUDA=cuda>=99")
    revision = make_repository(plane.git_root, "modest", container_files(Dockerfile=demanding))
    make_worker(executor="docker").start()

    job = plane.queue_job("modest", revision)

    eventually(lambda: plane.state(job) == "running", what="running")


@pytest.mark.docker
def test_what_its_base_image_needs_is_known_before_the_build(
    plane: ControlPlane, make_worker: Callable[..., WorkerProcess], tmp_path: Path
) -> None:
    machine = tmp_path / "gpus.json"
    machine.write_text('{"gpus": [{"uuid": "GPU-51"}], "cuda_version": "12.4"}')
    (tmp_path / "base").mkdir()
    base = Build(claim(), write(tmp_path / "base", {"Dockerfile": "FROM scratch\nENV NVIDIA_REQUIRE_CUDA=cuda>=13\n"}))
    try:
        dockerfile = f"FROM {base.run()}\nRUN never reached\n"
        revision = make_repository(plane.git_root, "newest", {"Dockerfile": dockerfile})
        make_worker(executor="docker", OPENFACE_SIMULATE_GPUS=str(machine)).start()

        job = plane.queue_job("newest", revision, kind="gpu", gpus=["GPU-51"])
        lease = eventually(lambda: plane.lease_of(job), what="the claim")
        eventually(lambda: "declined" in lease.kinds(), what="the refusal")
    finally:
        base.forget()

    assert lease.events[-1]["cuda"] == "13"
    assert "never reached" not in lease.logs["build"]
