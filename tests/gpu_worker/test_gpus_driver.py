"""The driver itself in trouble: not there, not loaded, updated under the running machine, or where Windows keeps it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu_worker.host import is_wsl2
from gpu_worker.kernel_driver import KernelDriver
from tests.gpu_worker.nvml import FULL, read_gpus


def kernel(directory: Path, *uuids: str, version: str = "550.54.14", excluded: str = "No") -> Path:
    """A /proc/driver/nvidia with these GPUs."""
    for number, uuid in enumerate(uuids):
        card = directory / "gpus" / f"0000:{number + 1:02x}:00.0"
        card.mkdir(parents=True)
        (card / "information").write_text(
            f"Model: \t\t NVIDIA GeForce RTX 4090\nIRQ:   \t\t 147\nGPU UUID: \t {uuid}\nVideo BIOS: \t 95.02.3c\n"
            f"Bus Location: \t 0000:{number + 1:02x}:00.0\nDevice Minor: \t {number}\nGPU Excluded:\t {excluded}\n"
        )
    directory.mkdir(exist_ok=True)
    (directory / "version").write_text(
        f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Thu Feb 22 01:44:30 UTC 2024\n"
        "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n"
    )
    return directory


def test_an_updated_driver_needs_a_restart_and_names_its_gpus(library_dir: Path, tmp_path: Path) -> None:
    module = kernel(tmp_path / "proc", "GPU-aaaa", "GPU-bbbb")

    answer = read_gpus(library_dir, tmp_path, [FULL], kernel=module, environment={"STUB_NVML_INIT": "18"})

    assert [(gpu["uuid"], gpu["healthy"]) for gpu in answer["gpus"]] == [("GPU-aaaa", False), ("GPU-bbbb", False)]
    assert all("until this machine is restarted" in gpu["error"] for gpu in answer["gpus"])
    assert answer["gpus"][0]["model"] == "NVIDIA GeForce RTX 4090"
    assert (answer["count"], answer["driver"]) == (2, "550.54.14")


def test_an_update_is_seen_by_a_worker_that_runs_on_with_the_old_library(library_dir: Path, tmp_path: Path) -> None:
    updated = tmp_path / "updated"
    updated.mkdir()
    (updated / "libnvidia-ml.so.565.57.01").write_bytes((library_dir / "libnvidia-ml.so.1").read_bytes())
    (updated / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.565.57.01")
    module = kernel(tmp_path / "proc", "GPU-aaaa")

    answer = read_gpus(updated, tmp_path, [FULL], kernel=module)

    [gpu] = answer["gpus"]
    assert (gpu["healthy"], gpu["total_vram_mib"]) == (False, 24564)
    assert "565.57.01" in gpu["error"] and "550.54.14" in gpu["error"]


def test_a_library_that_fits_its_module_is_well(library_dir: Path, tmp_path: Path) -> None:
    fitting = tmp_path / "fitting"
    fitting.mkdir()
    (fitting / "libnvidia-ml.so.550.54.14").write_bytes((library_dir / "libnvidia-ml.so.1").read_bytes())
    (fitting / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.550.54.14")

    [gpu] = read_gpus(fitting, tmp_path, [FULL], kernel=kernel(tmp_path / "proc", "GPU-aaaa"))["gpus"]

    assert (gpu["healthy"], gpu["error"]) == (True, None)


def test_a_gpu_that_cannot_be_opened_is_named_by_the_kernel(library_dir: Path, tmp_path: Path) -> None:
    module = kernel(tmp_path / "proc", "GPU-lost", "GPU-aaaa")

    answer = read_gpus(library_dir, tmp_path, ["nohandle=15", FULL], kernel=module)

    assert [(gpu["uuid"], gpu["healthy"]) for gpu in answer["gpus"]] == [("GPU-lost", False), ("GPU-aaaa", True)]
    assert answer["gpus"][0]["error"].startswith("The GPU is lost")
    assert answer["count"] == 2


def test_a_gpu_that_we_may_not_open_is_nobodys_fault(library_dir: Path, tmp_path: Path) -> None:
    module = kernel(tmp_path / "proc", "GPU-others", "GPU-aaaa")

    answer = read_gpus(library_dir, tmp_path, ["nohandle=4", FULL], kernel=module)

    assert [gpu["uuid"] for gpu in answer["gpus"]] == ["GPU-aaaa"]


@pytest.mark.parametrize(
    ("uuids", "excluded"),
    [(["GPU-????????-????-????-????-????????????", "GPU-aaaa"], "No"), (["GPU-x", "GPU-y"], "Yes")],
)
def test_a_gpu_without_a_known_name_is_only_counted(
    library_dir: Path, tmp_path: Path, uuids: list[str], excluded: str
) -> None:
    module = kernel(tmp_path / "proc", *uuids, excluded=excluded)

    answer = read_gpus(library_dir, tmp_path, ["nohandle=15", FULL], kernel=module)

    assert ([gpu["uuid"] for gpu in answer["gpus"]], answer["count"]) == (["GPU-aaaa"], 2)


def test_a_driver_that_is_not_loaded_is_a_sentence(library_dir: Path, tmp_path: Path) -> None:
    answer = read_gpus(library_dir, tmp_path, [], environment={"STUB_NVML_INIT": "9"})

    assert (answer["gpus"], answer["error"]) == ([], "The kernel module of the NVIDIA driver is not loaded.")


def test_a_library_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    answer = read_gpus(tmp_path, tmp_path, [])

    assert (answer["gpus"], answer["count"]) == ([], 0)
    assert answer["error"] == "The NVIDIA driver's library libnvidia-ml.so.1 is not here."


def test_the_library_of_windows_is_found_without_being_on_the_path(library_dir: Path, tmp_path: Path) -> None:
    answer = read_gpus(tmp_path, tmp_path, [FULL], wsl_library=library_dir / "libnvidia-ml.so.1")

    assert [gpu["uuid"] for gpu in answer["gpus"]] == ["GPU-aaaa"]


@pytest.mark.parametrize(
    ("kernel_says", "device", "wsl2"),
    [
        ("Linux version 5.15.153.1-microsoft-standard-WSL2 (root@941d701f84f1)", False, True),
        ("Linux version 6.1.0-21-amd64 (debian-kernel@lists.debian.org)", False, False),
        ("Linux version 6.6.36.3-my-own", True, True),
    ],
)
def test_wsl2_is_told_from_its_kernel_or_the_device_of_windows(
    tmp_path: Path, kernel_says: str, device: bool, wsl2: bool
) -> None:
    (tmp_path / "version").write_text(kernel_says)
    if device:
        (tmp_path / "dxg").touch()

    assert is_wsl2(tmp_path / "version", tmp_path / "dxg") is wsl2


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024", "535.183.01"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  560.35.03  Release Build  (root@)", "560.35.03"),
        ("something else", None),
    ],
)
def test_the_version_of_the_module_is_read_as_both_kinds_write_it(
    tmp_path: Path, line: str, version: str | None
) -> None:
    (tmp_path / "version").write_text(f"{line}\n")

    assert KernelDriver(tmp_path).version() == version
