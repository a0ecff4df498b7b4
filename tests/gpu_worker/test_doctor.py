"""The doctor: on a machine that lacks a part it says which, and what to do; on a whole one it has nothing to say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpu_worker import doctor, gpu_trouble
from gpu_worker.config import WorkerConfig
from gpu_worker.disk import DiskFloor
from gpu_worker.doctor import engine, gpu, machine
from gpu_worker.doctor.device_test import device_test
from gpu_worker.doctor.engine import EngineFacts
from gpu_worker.doctor.gpu import DriverLook, cards_on_the_bus
from gpu_worker.errors import EngineError
from gpu_worker.gpu_report import GpuReport
from gpu_worker.protocol import DoctorCheck, Gpu

ROOT = Path(__file__).parents[2]
CARD = Gpu(uuid="GPU-aaaa", model="NVIDIA RTX 4090", total_vram_mib=24564)
WORKING = GpuReport((CARD,), 1, "550.54.14", "12.4")


def config(tmp_path: Path, **changes: Any) -> WorkerConfig:
    return WorkerConfig(**{"url": "http://127.0.0.1:9", "data_dir": tmp_path, **changes})


def look(report: GpuReport, **changes: Any) -> DriverLook:
    facts = {"simulated": False, "wanted": True, "module_version": None, "cards_on_the_bus": 0}
    return DriverLook(report, **{**facts, **changes})


def only_on_path(monkeypatch: pytest.MonkeyPatch, directory: Path, *programs: str) -> None:
    directory.mkdir()
    for program in programs:
        (directory / program).write_text("#!/bin/sh\nexit 0\n")
        (directory / program).chmod(0o755)
    monkeypatch.setenv("PATH", str(directory))


def test_the_command_tells_each_check_and_fails_where_one_is_bad(tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "DOCKER_HOST": f"unix://{tmp_path}/nobody"}
    command = [sys.executable, "-m", "gpu_worker", "doctor", "--json", "--data-dir", str(tmp_path)]

    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)

    answer = json.loads(done.stdout)
    checks = {check["check"]: check for check in answer["checks"]}
    assert (done.returncode, answer["ok"]) == (1, False)
    assert checks["data_dir"]["ok"] is True
    assert checks["engine"]["ok"] is False and "Docker" in checks["engine"]["remedy"]
    address = f"unix://{tmp_path}/nobody"
    assert checks["engine"]["detail"] == f"the container engine at {address} does not answer: No such file or directory"
    assert checks["control_plane"]["detail"] == "OPENFACE_URL is not set"
    assert all(check["remedy"] for check in answer["checks"] if check["ok"] is False)


class TestTheMachine:
    def test_a_data_directory_that_is_not_there_is_bad(self, tmp_path: Path) -> None:
        check = machine.data_dir(config(tmp_path / "none"))

        assert (check.ok, check.detail) == (False, f"{tmp_path}/none is not a directory")
        assert "mkdir -p" in str(check.remedy)

    @pytest.mark.parametrize(("free_gib", "ok"), [(4, False), (10, None), (100, True)])
    def test_little_room_is_said_and_too_little_is_bad(
        self, monkeypatch: pytest.MonkeyPatch, free_gib: int, ok: bool | None
    ) -> None:
        monkeypatch.setattr("shutil.disk_usage", lambda path: _Usage(free_gib * 1024**3))

        check = machine.disk_check("disk", Path("/data"), "Free some.", floor=DiskFloor(5 * 1024))

        assert (check.ok, check.remedy) == (ok, None if ok else "Free some.")
        assert f"{free_gib}.0 GiB free at /data" in str(check.detail)
        assert ("below the floor of 5.0 GiB: no job is taken" in str(check.detail)) is (ok is False)

    def test_each_missing_program_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        only_on_path(monkeypatch, tmp_path / "bin", "git")

        assert machine.git(config(tmp_path)).ok is True
        check = machine.git_lfs(config(tmp_path))

        assert (check.ok, check.remedy) == (False, "Install git-lfs.")


class _Usage:
    def __init__(self, free: int) -> None:
        self.free = free


class TestTheEngine:
    def test_nothing_is_said_of_gpus_while_it_does_not_answer(self, tmp_path: Path) -> None:
        silent = EngineFacts({}, "It does not answer.")

        assert engine.engine(silent, config(tmp_path)).ok is False
        assert [check.ok for check in engine.gpu_support(silent, wanted=True)] == [None]

    def test_a_command_line_without_buildkit_is_bad(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        only_on_path(monkeypatch, tmp_path / "bin")

        check = engine.buildkit(EngineFacts({}))

        assert (check.ok, "buildx" in str(check.remedy)) == (False, True)

    def support(self, **info: Any) -> dict[str, DoctorCheck]:
        return {check.check: check for check in engine.gpu_support(EngineFacts(info), wanted=True)}

    def test_without_the_toolkit_gpu_jobs_would_fail(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        only_on_path(monkeypatch, tmp_path / "bin")

        check = self.support(Runtimes={"runc": {}})["gpu_runtime"]

        assert (check.ok, "NVIDIA Container Toolkit" in str(check.remedy)) == (False, True)

    def test_the_toolkit_is_found_as_a_runtime_or_as_a_hook(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        only_on_path(monkeypatch, tmp_path / "bin")
        assert self.support(Runtimes={"runc": {}, "nvidia": {}})["gpu_runtime"].ok is True

        only_on_path(monkeypatch, tmp_path / "more", "nvidia-container-runtime-hook")
        assert self.support(Runtimes={"runc": {}})["gpu_runtime"].ok is True

    def test_a_machine_without_gpus_needs_no_toolkit(self) -> None:
        [check] = engine.gpu_support(EngineFacts({"Runtimes": {}}), wanted=False)

        assert (check.ok, check.remedy) == (None, None)

    @pytest.mark.parametrize(
        ("settings", "warned"),
        [
            (None, True),
            ("accept-nvidia-visible-devices-envvar-when-unprivileged = true\n", True),
            ("accept-nvidia-visible-devices-envvar-when-unprivileged = false\n", False),
            ("not = a [ file", True),
        ],
    )
    def test_nvidia_as_default_runtime_is_warned_of_unless_images_may_not_ask(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: str | None, warned: bool
    ) -> None:
        monkeypatch.setattr(engine, "TOOLKIT_CONFIG", tmp_path / "config.toml")
        if settings is not None:
            (tmp_path / "config.toml").write_text(settings)

        checks = self.support(Runtimes={"nvidia": {}}, DefaultRuntime="nvidia")

        assert ("default_runtime" in checks) is warned
        assert "default_runtime" not in self.support(Runtimes={"nvidia": {}}, DefaultRuntime="runc")

    def test_control_groups_of_systemd_are_warned_of_unless_the_devices_have_links(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(engine, "DEVICE_LINKS", tmp_path)
        warned = self.support(Runtimes={"nvidia": {}}, CgroupDriver="systemd")
        assert "cgroupfs" in str(warned["cgroups"].remedy)

        assert "cgroups" not in self.support(Runtimes={"nvidia": {}}, CgroupDriver="cgroupfs")
        (tmp_path / "195:0").symlink_to("/dev/nvidia0")
        assert "cgroups" not in self.support(Runtimes={"nvidia": {}}, CgroupDriver="systemd")


class TestTheGpus:
    def test_a_working_driver_is_named_with_its_gpus(self) -> None:
        assert gpu.driver(look(WORKING)).detail == "NVIDIA driver 550.54.14, CUDA up to 12.4"
        check = gpu.gpus(look(WORKING))
        assert (check.ok, check.detail) == (True, "1 GPU: NVIDIA RTX 4090 (GPU-aaaa, 24.0 GB)")

    def test_no_gpu_is_nothing_bad(self) -> None:
        check = gpu.driver(look(GpuReport(error="The NVIDIA driver's library libnvidia-ml.so.1 is not here.")))

        assert (check.ok, check.remedy) == (None, None)
        assert str(check.detail).startswith("no NVIDIA GPU here: CPU jobs only.")

    @pytest.mark.parametrize(("wanted", "ok"), [(True, False), (False, None)])
    def test_a_card_without_a_driver_is_bad_where_it_is_to_be_lent(self, wanted: bool, ok: bool | None) -> None:
        check = gpu.driver(look(GpuReport(error="It is not here."), cards_on_the_bus=1, wanted=wanted))

        assert check.ok is ok
        assert str(check.remedy).startswith("Install the NVIDIA driver")

    def test_a_module_without_its_library_is_bad(self) -> None:
        check = gpu.driver(look(GpuReport(error="The library is not here."), module_version="550.54.14"))

        assert (check.ok, check.detail) == (False, "The library is not here. The kernel runs driver 550.54.14")

    @pytest.mark.parametrize("error", ["before the worker", None], ids=["before the worker", "under the worker"])
    def test_an_updated_driver_needs_a_restart(self, error: str | None) -> None:
        trouble = gpu_trouble.of_driver(gpu_trouble.MISMATCH, "")
        sick = Gpu(uuid="GPU-aaaa", healthy=False, error=trouble.sentence)

        said = GpuReport((sick,), 1, error=trouble.sentence if error else None, broken=bool(error), trouble=trouble)
        check = gpu.driver(look(said))

        assert (check.ok, str(check.remedy).startswith("Restart this machine")) == (False, True)

    def test_a_driver_that_does_not_work_is_bad_also_where_no_gpu_is_known(self) -> None:
        check = gpu.driver(look(GpuReport(error="This user may not use the NVIDIA driver.", broken=True)))

        assert (check.ok, check.detail) == (False, "This user may not use the NVIDIA driver.")

    def test_a_sick_gpu_and_one_that_is_missing_are_bad(self) -> None:
        sick = Gpu(uuid="GPU-sick", healthy=False, error="The GPU is lost.")

        ill, missing = gpu.gpus(look(GpuReport((sick, CARD), 2))), gpu.gpus(look(GpuReport((CARD,), 2)))

        assert (ill.ok, missing.ok) == (False, False)
        assert "GPU (GPU-sick, not usable: The GPU is lost.)" in str(ill.detail)
        assert "1 more that the driver counts and cannot open" in str(missing.detail)

    def test_simulated_gpus_are_named_so_and_need_no_toolkit(self) -> None:
        simulated = look(WORKING, simulated=True)

        assert "simulated" in str(gpu.gpus(simulated).detail)
        assert not simulated.needs_toolkit

    def test_cards_are_counted_on_the_bus(self, tmp_path: Path) -> None:
        graphics, sound, compute = "0x030000", "0x040300", "0x030200"
        cards = (("0x10de", graphics), ("0x10de", sound), ("0x1002", graphics), ("0x10de", compute))
        for name, (vendor, kind) in zip("abcd", cards, strict=True):
            (tmp_path / name).mkdir()
            (tmp_path / name / "vendor").write_text(f"{vendor}\n")
            (tmp_path / name / "class").write_text(f"{kind}\n")

        assert cards_on_the_bus(tmp_path) == 2, "a card's sound is no card, and another maker's no NVIDIA"


def test_a_worker_with_simulated_gpus_passes_on_this_machine(tmp_path: Path) -> None:
    file = tmp_path / "gpus.json"
    file.write_text('{"gpus": [{"uuid": "GPU-1"}]}')

    checks = doctor.examine(config(tmp_path, executor="process", simulate_gpus=file))

    assert [check.check for check in checks if check.ok is False] == []
    assert {"executor", "driver", "gpu"} <= {check.check for check in checks}


class Trial:
    """Stands for the engine: what a container that was given a GPU says."""

    def __init__(self, *, code: int = 0, output: str = "", problem: str = "", image: str | None = "image") -> None:
        self._code, self._output, self._problem, self._image = code, output, problem, image

    def image(self, wanted: str | None) -> str | None:
        return self._image

    def run(self, image: str, uuid: str) -> tuple[int, str]:
        if self._problem:
            raise EngineError(self._problem)
        return self._code, self._output


class TestTheDevice:
    def tried(self, trial: Trial, card: Gpu = CARD) -> DoctorCheck:
        [check] = device_test([card], image=None, trial=trial)
        return check

    def test_a_container_that_sees_its_gpu_alone_is_good(self) -> None:
        assert self.tried(Trial(output="GPU 0: NVIDIA RTX 4090 (UUID: GPU-aaaa)\n")).ok is True

    def test_one_that_sees_another_or_more_is_bad(self) -> None:
        listed = "GPU 0: A (UUID: GPU-aaaa)\nGPU 1: B (UUID: GPU-bbbb)\n"

        more, other = self.tried(Trial(output=listed)), self.tried(Trial(output="GPU 0: B (UUID: GPU-bbbb)\n"))

        assert (more.ok, other.ok) == (False, False)
        assert "sees GPU-aaaa, GPU-bbbb" in str(more.detail)
        assert "MAX_GPU_JOBS=1" in str(more.remedy)

    def test_one_that_sees_none_is_bad(self) -> None:
        check = self.tried(Trial(code=255, output="Failed to initialize NVML: Unknown Error\n"))

        assert (check.ok, "Unknown Error" in str(check.detail)) == (False, True)

    def test_an_image_that_cannot_run_the_program_proves_nothing(self) -> None:
        check = self.tried(Trial(code=127, output="exec nvidia-smi: no such file\n"))

        assert (check.ok, "--test-image" in str(check.remedy)) == (None, True)

    def test_an_engine_without_the_toolkit_is_explained(self) -> None:
        check = self.tried(Trial(problem='could not select device driver "" with capabilities: [[gpu]]'))

        assert (check.ok, "NVIDIA Container Toolkit" in str(check.detail)) == (False, True)

    def test_without_an_image_nothing_is_tried(self) -> None:
        assert self.tried(Trial(image=None)).ok is None

    @pytest.mark.parametrize("facts", [{"healthy": False}, {"simulated": True}, {"mig": True}])
    def test_what_no_job_is_given_is_not_tried(self, facts: dict[str, Any]) -> None:
        check = self.tried(Trial(problem="must not be asked"), Gpu(uuid="GPU-x", **facts))

        assert (check.ok, check.detail) == (None, "no GPU to test")
