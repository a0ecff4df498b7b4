"""What the engine and the GPU toolkit say when a container does not start, for people; and what they say inside."""

from __future__ import annotations

import pytest

from gpu_worker.gpu_sight import Sight, judge
from gpu_worker.start_failures import LONGEST_QUOTE, explain

OCI = (
    "failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: "
    "error during container init: error running hook #0: error running hook: exit status 1, stdout: , stderr: "
)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (
            "source /var/lib/docker/overlay2/5a21b3/merged/data is not directory",
            "The image has a file at /data, where the directory that the Space keeps has to be.",
        ),
        (
            "cannot mount volume over existing file, file exists /var/lib/docker/overlay2/5a21b3/merged/cache",
            "The image has a file at /cache, where the directory that the Space keeps has to be.",
        ),
        (
            'could not select device driver "" with capabilities: [[gpu]]',
            "Docker cannot give GPUs to containers: install the NVIDIA Container Toolkit and restart Docker.",
        ),
        (
            f"{OCI}nvidia-container-cli: device error: unknown device: GPU-1234: unknown",
            "The NVIDIA Container Toolkit does not know the GPU GPU-1234,",
        ),
        (
            f"{OCI}nvidia-container-cli: initialization error: nvml error: driver/library version mismatch: unknown",
            "The NVIDIA driver was updated, but the kernel still runs the old one: restart this machine.",
        ),
        (
            f"{OCI}nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8, please update your "
            "driver to a newer version, or use an earlier cuda container: unknown",
            "The image needs cuda>=12.8, which the driver of this machine is too old for.",
        ),
        (
            f"{OCI}nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open "
            "shared object file: no such file or directory: unknown",
            "The NVIDIA Container Toolkit does not find the driver of this machine.",
        ),
        (
            f"{OCI}nvidia-container-cli: initialization error: WSL environment detected but no adapters were found",
            "The NVIDIA Container Toolkit cannot use the driver of this machine (WSL environment detected but",
        ),
        (
            'OCI runtime create failed: exec: "serve": executable file not found in $PATH: unknown',
            "The image's command serve is not in the image.",
        ),
        ("exec /app/run: exec format error", "The image was built for another kind of processor"),
        ("write /var/lib/docker/x: no space left on device", "The disk of this machine is full."),
        ("something new", "The engine could not start the container: something new"),
    ],
)
def test_a_refusal_is_explained(said: str, sentence: str) -> None:
    assert explain(said).startswith(sentence)


def test_the_engines_own_words_follow_and_have_an_end() -> None:
    said = explain('could not select device driver "" with capabilities: [[gpu]] ' + "x" * 5000)

    assert '(could not select device driver "" with capabilities: [[gpu]]' in said
    assert len(said) < LONGEST_QUOTE + 200


@pytest.mark.parametrize(
    ("code", "output", "sight"),
    [
        (0, b"GPU 0: NVIDIA A10 (UUID: GPU-f15a)\n", Sight.SEEN),
        (255, b"Failed to initialize NVML: Unknown Error\n", Sight.LOST),
        (6, b"No devices were found\n", Sight.LOST),
        (0, b"", Sight.LOST),
        (127, b"sh: nvidia-smi: not found\n", Sight.UNKNOWN),
        (126, b"OCI runtime exec failed: exec failed: permission denied\n", Sight.UNKNOWN),
        (None, b"", Sight.UNKNOWN),
        (12, b"NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.\n", Sight.UNKNOWN),
    ],
)
def test_a_lost_gpu_is_told_from_an_image_that_cannot_answer(code: int | None, output: bytes, sight: Sight) -> None:
    assert judge(code, output) is sight
