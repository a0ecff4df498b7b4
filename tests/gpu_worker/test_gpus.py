"""What the worker tells of GPUs: field by field, one bad GPU never hiding the others; through the real NVML library
calls on a small stand-in for the driver, and from a file of simulated ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpu_worker.errors import ConfigError
from gpu_worker.gpus import SimulatedProbe, _name, assigned_gpus, read_simulated
from gpu_worker.machine import sees_processes_of_the_machine
from gpu_worker.protocol import Gpu
from tests.gpu_worker.nvml import build_nvml_stub
from tests.gpu_worker.schemas import complaints

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def library_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_nvml_stub(tmp_path_factory.mktemp("driver"))


def report(library_dir: Path, tmp_path: Path, gpus: list[str]) -> dict[str, Any]:
    """The report of a fresh process that finds the stand-in as its driver."""
    table = tmp_path / "gpus.txt"
    table.write_text("\n".join(gpus) + "\n", errors="surrogateescape")
    code = (
        "import json\nfrom gpu_worker.gpus import NvmlProbe\n"
        "report = NvmlProbe().report(lambda pid: 'lease-of-%d' % pid if pid < 1000 else None)\n"
        "print(json.dumps({'gpus': [g.wire() for g in report.gpus], 'count': report.count,"
        " 'driver': report.driver_version, 'cuda': report.cuda_version, 'error': report.error}))"
    )
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library_dir), "STUB_NVML_FILE": str(table)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


FULL = "uuid=GPU-aaaa name=NVIDIA_RTX_4090 total=24564 free=20000 util=87 temp=71 power=312500 cc=8.9 mig=0"


def test_a_gpu_is_told_field_by_field(library_dir: Path, tmp_path: Path) -> None:
    answer = report(library_dir, tmp_path, [FULL + " procs=500:4096,4711:128"])

    [gpu] = answer["gpus"]
    assert (gpu["uuid"], gpu["index"], gpu["model"]) == ("GPU-aaaa", 0, "NVIDIA RTX 4090")
    assert (gpu["total_vram_mib"], gpu["free_vram_mib"]) == (24564, 20000)
    assert (gpu["utilization_pct"], gpu["temperature_c"], gpu["power_w"]) == (87, 71, 312.5)
    assert (gpu["compute_capability"], gpu["mig"], gpu["healthy"], gpu["simulated"]) == ("8.9", False, True, False)
    assert gpu["ours"] == [{"lease": "lease-of-500", "mib": 4096}]
    assert [(other["pid"], other["mib"]) for other in gpu["foreign"]] == [(4711, 128)]
    assert (answer["count"], answer["driver"], answer["cuda"]) == (1, "550.54.14", "12.4")


def test_fields_that_cannot_be_read_are_null(library_dir: Path, tmp_path: Path) -> None:
    [gpu] = report(library_dir, tmp_path, ["uuid=GPU-aaaa total=24564 free=20000"])["gpus"]

    for field in ("model", "utilization_pct", "temperature_c", "power_w", "compute_capability", "mig"):
        assert gpu[field] is None
    assert gpu["healthy"] is True
    assert gpu["total_vram_mib"] == 24564


def test_use_that_cannot_be_measured_is_null(library_dir: Path, tmp_path: Path) -> None:
    [gpu] = report(library_dir, tmp_path, [FULL + " procs=500:-"])["gpus"]

    assert gpu["ours"] == [{"lease": "lease-of-500", "mib": None}]


def test_a_lost_gpu_is_unhealthy_and_hides_no_other(library_dir: Path, tmp_path: Path) -> None:
    answer = report(library_dir, tmp_path, ["uuid=GPU-lost fail=15", FULL])

    assert [(gpu["uuid"], gpu["healthy"]) for gpu in answer["gpus"]] == [("GPU-lost", False), ("GPU-aaaa", True)]
    assert answer["gpus"][0]["error"]


def test_a_gpu_without_a_handle_shows_in_the_count(library_dir: Path, tmp_path: Path) -> None:
    answer = report(library_dir, tmp_path, ["nohandle=15", FULL])

    assert [gpu["uuid"] for gpu in answer["gpus"]] == ["GPU-aaaa"]
    assert answer["count"] == 2


def test_no_driver_is_no_gpu_and_a_reason(tmp_path: Path) -> None:
    answer = report(tmp_path, tmp_path, [])

    assert answer["gpus"] == []
    assert answer["error"]


def write(path: Path, content: object) -> Path:
    path.write_text(json.dumps(content))
    return path


def test_simulated_gpus_are_marked_and_read_again(tmp_path: Path) -> None:
    file = write(tmp_path / "gpus.json", {"cuda_version": "12.4", "gpus": [{"uuid": "GPU-1", "total_vram_mib": 12287}]})
    probe = SimulatedProbe(file)

    before = probe.report(lambda pid: None)
    write(file, {"gpus": [{"uuid": "GPU-1", "total_vram_mib": 12287, "free_vram_mib": 100, "healthy": False}]})
    after = probe.report(lambda pid: None)

    assert before.gpus[0] == Gpu(uuid="GPU-1", index=0, vendor="NVIDIA", total_vram_mib=12287, free_vram_mib=12287,
                                 mig=False, simulated=True)  # fmt: skip
    assert (after.gpus[0].free_vram_mib, after.gpus[0].healthy, after.gpus[0].simulated) == (100, False, True)


def test_a_simulated_gpu_is_valid_on_the_wire(tmp_path: Path) -> None:
    file = write(tmp_path / "gpus.json", {"gpus": [{"uuid": "GPU-1"}]})
    gpus = [gpu.wire() for gpu in read_simulated(file).gpus]

    assert complaints("claim.request", {"session": 1, "free_slots": {"gpu": 1, "cpu": 0}, "gpus": gpus}) == []


@pytest.mark.parametrize("content", ["{", "[]", '{"gpus": [{}]}', '{"gpus": [{"uuid": 3}]}'])
def test_a_broken_file_is_a_sentence(tmp_path: Path, content: str) -> None:
    file = tmp_path / "gpus.json"
    file.write_text(content)

    with pytest.raises(ConfigError, match="simulated GPUs"):
        read_simulated(file)
    assert SimulatedProbe(file).report(lambda pid: None).error


def test_a_job_gets_only_gpus_that_are_there_and_healthy() -> None:
    gpus = [Gpu(uuid="GPU-1"), Gpu(uuid="GPU-2", healthy=False)]

    assert assigned_gpus(gpus, ["GPU-1"]) == [gpus[0]]
    assert assigned_gpus(gpus, []) == []
    assert assigned_gpus(gpus, ["GPU-1", "GPU-2"]) is None
    assert assigned_gpus(gpus, ["GPU-3"]) is None


@pytest.mark.parametrize(
    ("namespace", "seen"), [("pid:[4026531836]", True), ("pid:[4026532618]", False), (None, False)], ids=str
)
def test_a_worker_in_a_container_of_its_own_cannot_tell_whose_process_uses_a_gpu(
    tmp_path: Path, namespace: str | None, seen: bool
) -> None:
    link = tmp_path / "pid"
    if namespace is not None:
        link.symlink_to(namespace)

    assert sees_processes_of_the_machine(link) is seen


def test_figures_that_cannot_be_true_are_null(library_dir: Path, tmp_path: Path) -> None:
    mad = "uuid=GPU-mad total=24564 free=20000 util=4294967295 temp=4294967295 power=4294967295"

    [first, second] = report(library_dir, tmp_path, [mad, FULL])["gpus"]

    assert (first["utilization_pct"], first["temperature_c"], first["power_w"]) == (None, None, None)
    assert (first["healthy"], first["total_vram_mib"]) == (True, 24564)
    assert second["utilization_pct"] == 87


@pytest.mark.parametrize("figure", ["NaN", "Infinity", "-1", "1e300"])
def test_simulated_figures_that_cannot_be_true_are_null(tmp_path: Path, figure: str) -> None:
    file = tmp_path / "gpus.json"
    file.write_text(f'{{"gpus": [{{"uuid": "GPU-1", "utilization_pct": {figure}, "power_w": {figure}}}]}}')

    [gpu] = read_simulated(file).gpus

    assert (gpu.utilization_pct, gpu.power_w) == (None, None)


def test_a_name_of_no_known_encoding_hides_no_gpu(library_dir: Path, tmp_path: Path) -> None:
    table = FULL.replace("name=NVIDIA_RTX_4090", "name=RTX\udcff")

    [first, second] = report(library_dir, tmp_path, [table, FULL.replace("aaaa", "bbbb")])["gpus"]

    assert (first["uuid"], first["model"], first["total_vram_mib"]) == ("GPU-aaaa", None, 24564)
    assert second["model"] == "NVIDIA RTX 4090"


def test_a_process_may_call_itself_anything() -> None:
    code = (
        "import ctypes, sys; ctypes.CDLL(None).prctl(15, b'\\xff\\xfe'); print('named', flush=True); sys.stdin.read()"
    )
    named = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with named:
        assert named.stdout is not None
        assert named.stdout.readline() == "named\n"

        name = _name(named.pid)

    assert name == "\ufffd\ufffd"
