"""The variables an app starts with: the worker's own win, and say what share of the machine the app has."""

from __future__ import annotations

import pytest

from gpu_worker.environment import job_environment, not_of_an_image
from gpu_worker.job_limits import ContainerLimits
from gpu_worker.journal import JobFacts
from gpu_worker.protocol import Gpu

CARD = "NVIDIA GeForce RTX 4090"


def environment(
    *, variables: dict[str, str] | None = None, gpus: tuple[Gpu, ...] = (), limits: ContainerLimits | None = None
) -> dict[str, str]:
    facts = JobFacts(
        job="j", lease="l", attempt=1, kind="gpu" if gpus else "cpu", mode="service", owner="alice", repo="app",
        repository_id="42", revision="abc", port=7860, gpus=tuple(gpu.uuid for gpu in gpus),
    )  # fmt: skip
    return job_environment(facts, variables=variables or {}, secrets={}, port=7860, assigned=gpus, limits=limits)


@pytest.mark.parametrize(
    ("gpus", "accelerator"),
    [
        ((), "none"),
        ((Gpu(uuid="GPU-1", model=CARD),), "rtx-4090"),
        ((Gpu(uuid="GPU-1", model=CARD), Gpu(uuid="GPU-2", model=CARD)), "rtx-4090-x2"),
        ((Gpu(uuid="GPU-1", model="Tesla T4"),), "tesla-t4"),
        ((Gpu(uuid="GPU-1"),), "gpu"),
    ],
)
def test_an_app_reads_its_accelerator(gpus: tuple[Gpu, ...], accelerator: str) -> None:
    assert environment(gpus=gpus)["ACCELERATOR"] == accelerator


@pytest.mark.parametrize(
    ("limits", "cores", "memory"),
    [
        (ContainerLimits(memory_mib=16384, cpus=4, pids=100), "4", "16Gi"),
        (ContainerLimits(memory_mib=1500, cpus=2.5, pids=100), "3", "1500Mi"),
        (ContainerLimits(memory_mib=64, cpus=0.5, pids=100), "1", "64Mi"),
    ],
)
def test_an_app_reads_its_share_of_the_machine(limits: ContainerLimits, cores: str, memory: str) -> None:
    told = environment(limits=limits)

    assert (told["CPU_CORES"], told["MEMORY"]) == (cores, memory)


def test_where_an_app_has_the_whole_machine_nothing_is_said_of_a_share() -> None:
    assert environment().keys().isdisjoint({"CPU_CORES", "MEMORY"})


@pytest.mark.parametrize(
    "name",
    [
        "PORT", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DISABLE_REQUIRE", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",
        "CUDA_MPS_PIPE_DIRECTORY", "OPENFACE_LEASE", "OPENFACE_WORKER", "ACCELERATOR", "MEMORY", "CPU_CORES",
        "nvidia_visible_devices",
    ],
)  # fmt: skip
def test_a_repository_does_not_set_what_is_the_workers(name: str) -> None:
    assert "mine" not in environment(variables={name: "mine", "FREE": "yes"}).values()


def test_a_repositorys_other_variables_arrive() -> None:
    assert environment(variables={"FREE": "yes", "HF_HOME": "/data/models"})["HF_HOME"] == "/data/models"


def test_of_an_images_variables_those_go_that_could_ask_for_devices() -> None:
    asks = {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_MIG_CONFIG_DEVICES", "NVIDIA_IMEX_CHANNELS", "CUDA_MPS_PIPE_DIRECTORY"}
    says = {
        "NVIDIA_DRIVER_CAPABILITIES",
        "NVIDIA_REQUIRE_CUDA",
        "NVIDIA_DISABLE_REQUIRE",
        "NVIDIA_PYTORCH_VERSION",
        "A",
    }

    assert not_of_an_image(asks | says) == asks
