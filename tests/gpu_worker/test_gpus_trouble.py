"""Each error of the driver is told as what it is, with the remedy that helps against it and no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pynvml
import pytest

from gpu_worker import gpu_trouble
from tests.gpu_worker.nvml import FULL, read_gpus
from tests.gpu_worker.test_gpus_driver import kernel

CODES = {value for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_")}


def doctor(library_dir: Path, tmp_path: Path, gpus: list[str] | None = None, **facts: Any) -> dict[str, Any]:
    """What the doctor says of the driver and of the GPUs."""
    checks: dict[str, Any] = read_gpus(library_dir, tmp_path, [FULL] if gpus is None else gpus, **facts)["doctor"]
    return checks


def test_the_numbers_are_those_of_the_library() -> None:
    ours = {name: value for name, value in vars(gpu_trouble).items() if name.isupper() and isinstance(value, int)}
    theirs = {
        "NO_POWER": "INSUFFICIENT_POWER", "NOT_LOADED": "DRIVER_NOT_LOADED", "IRQ": "IRQ_ISSUE",
        "NO_LIBRARY": "LIBRARY_NOT_FOUND", "NO_FUNCTION": "FUNCTION_NOT_FOUND", "INFOROM": "CORRUPTED_INFOROM",
        "LOST": "GPU_IS_LOST", "RESET": "RESET_REQUIRED", "MISMATCH": "LIB_RM_VERSION_MISMATCH",
        "NO_RESOURCES": "INSUFFICIENT_RESOURCES", "NO_GPU": "GPU_NOT_FOUND",
    }  # fmt: skip
    assert ours == {name: getattr(pynvml, f"NVML_ERROR_{theirs.get(name, name)}") for name in ours}


@pytest.mark.parametrize(
    ("code", "in_container", "said", "helps"),
    [
        (4, False, "may not use", "ls -l /dev/nvidia*"),
        (4, False, "may not use", "usermod -aG video"),
        (4, True, "may not use", "NVIDIA_DRIVER_CAPABILITIES=utility"),
        (8, False, "lacks power", "power cables"),
        (10, False, "Timeout", "passes by itself"),
        (11, False, "interrupts", "BIOS"),
        (13, False, "lacks what every driver", "stub of the CUDA toolkit"),
        (15, False, "is lost", "Xid"),
        (16, False, "needs a reset", "--gpu-reset"),
        (17, False, "keeps this process from", "DeviceAllow="),
        (17, True, "keeps this process from", "Start this worker's container anew"),
        (18, False, "was updated", "Restart this machine"),
        (18, True, "was updated", "start this worker's container anew"),
        (27, False, "is not ready", "nvidia-fabricmanager"),
        (28, False, "finds no GPU", "too old"),
        (999, False, "Unknown Error", "dmesg"),
        (999, True, "Unknown Error", "Start this worker's container anew"),
        (4711, False, "(4711)", "dmesg"),
    ],
)
def test_a_library_that_does_not_open_is_told_with_what_helps(
    library_dir: Path, tmp_path: Path, code: int, in_container: bool, said: str, helps: str
) -> None:
    checks = doctor(library_dir, tmp_path, environment={"STUB_NVML_INIT": str(code)}, in_container=in_container)

    driver = checks["driver"]
    assert (driver["ok"], said in driver["detail"], helps in driver["remedy"]) == (False, True, True), driver
    assert checks["gpu"]["detail"] == "not known while the driver does not work"


def test_only_what_a_restart_helps_against_is_answered_by_one(library_dir: Path, tmp_path: Path) -> None:
    remedies = {
        code: doctor(library_dir, tmp_path, environment={"STUB_NVML_INIT": str(code)})["driver"]["remedy"]
        for code in (4, 8, 13, 17, 28)
    }

    assert [code for code, remedy in remedies.items() if "estart" in remedy] == []


@pytest.mark.parametrize("code", sorted(CODES - {9, 12}))
def test_no_error_of_the_driver_is_taken_for_a_machine_without_a_gpu(
    library_dir: Path, tmp_path: Path, code: int
) -> None:
    for environment in ({"STUB_NVML_INIT": str(code)}, {"STUB_NVML_COUNT": str(code)}):
        driver = doctor(library_dir, tmp_path, environment=environment)["driver"]

        assert (driver["ok"], "no NVIDIA GPU here" in driver["detail"]) == (False, False)
        assert driver["remedy"]


def test_an_update_is_headed_as_one_also_where_the_kernels_own_list_cannot_be_seen(
    library_dir: Path, tmp_path: Path
) -> None:
    for module in (Path("/nonexistent"), kernel(tmp_path / "proc", "GPU-aaaa")):
        driver = doctor(library_dir, tmp_path, environment={"STUB_NVML_INIT": "18"}, kernel=module)["driver"]

        assert driver["detail"].startswith("The NVIDIA driver was updated, but the kernel still runs the old one")
        assert driver["remedy"].startswith("Restart this machine")


def test_a_module_that_is_not_loaded_is_to_be_loaded_and_not_installed_again(library_dir: Path, tmp_path: Path) -> None:
    not_loaded = {"STUB_NVML_INIT": "9"}

    driver = doctor(library_dir, tmp_path, environment=not_loaded, cards_on_the_bus=1)["driver"]

    assert (driver["ok"], "modprobe nvidia" in driver["remedy"]) == (False, True)
    assert "Install" not in driver["remedy"] and "MAX_GPU_JOBS=0" in driver["remedy"]


def test_devices_that_are_missing_are_not_called_a_missing_module(library_dir: Path, tmp_path: Path) -> None:
    facts: dict[str, Any] = {"environment": {"STUB_NVML_INIT": "9"}, "kernel": kernel(tmp_path / "proc")}

    here = doctor(library_dir, tmp_path, **facts)["driver"]
    inside = doctor(library_dir, tmp_path, **facts, in_container=True)["driver"]

    assert here["detail"] == "The kernel runs driver 550.54.14, but its devices (/dev/nvidiactl) are not here"
    assert "nvidia-modprobe" in here["remedy"] and "NVIDIA_DRIVER_CAPABILITIES=utility" in inside["remedy"]


@pytest.mark.parametrize(
    ("code", "helps"),
    [(8, "power cables"), (11, "BIOS"), (15, "Xid"), (16, "--gpu-reset"), (17, "DeviceAllow="), (999, "dmesg")],
)
def test_a_sick_gpu_has_the_remedy_of_its_own_sickness(
    library_dir: Path, tmp_path: Path, code: int, helps: str
) -> None:
    silent = doctor(library_dir, tmp_path, [f"uuid=GPU-sick fail={code}", FULL])
    unopened = doctor(library_dir, tmp_path, [f"nohandle={code}", FULL])

    for checks in (silent, unopened):
        assert (checks["driver"]["ok"], checks["gpu"]["ok"], helps in checks["gpu"]["remedy"]) == (True, False, True)


def test_two_sicknesses_have_two_remedies_each_once(library_dir: Path, tmp_path: Path) -> None:
    sick = [f"uuid=GPU-{place} fail={code}" for place, code in enumerate((16, 8, 8))]

    remedy = doctor(library_dir, tmp_path, sick)["gpu"]["remedy"]

    assert (remedy.count("--gpu-reset"), remedy.count("power cables")) == (1, 1)


def test_a_gpu_that_this_user_may_not_open_is_no_fault_and_told(library_dir: Path, tmp_path: Path) -> None:
    gpu = doctor(library_dir, tmp_path, ["nohandle=4", FULL])["gpu"]

    assert (gpu["ok"], "1 more that this user may not open" in gpu["detail"]) == (None, True)
    assert "ls -l /dev/nvidia*" in gpu["remedy"] and "Xid" not in gpu["remedy"]


def test_a_gpu_that_could_not_even_be_opened_says_why(library_dir: Path, tmp_path: Path) -> None:
    gpu = doctor(library_dir, tmp_path, ["nohandle=8", FULL])["gpu"]

    assert "1 more that the driver counts and cannot open: The GPU lacks power" in gpu["detail"]
