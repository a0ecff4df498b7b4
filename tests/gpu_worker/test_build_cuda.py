"""An image that needs a newer driver than the worker has is known before its container is made."""

from __future__ import annotations

import pytest

from gpu_worker.cuda_requirement import Driver, Unmet, unmet

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
