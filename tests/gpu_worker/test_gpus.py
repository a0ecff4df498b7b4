"""What the worker tells of GPUs: field by field, one bad GPU never hiding the others; through the real NVML library
calls on a small stand-in for the driver, and from a file of simulated ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_worker.errors import ConfigError
from gpu_worker.gpu_owners import GpuOwners
from gpu_worker.gpus import assigned_gpus, process_name
from gpu_worker.host import sees_processes_of_the_machine
from gpu_worker.protocol import Gpu
from gpu_worker.simulated_gpus import SimulatedProbe, read_simulated
from tests.gpu_worker.nvml import FULL, read_gpus
from tests.gpu_worker.schemas import complaints

NOBODY = GpuOwners()


def test_a_gpu_is_told_field_by_field(library_dir: Path, tmp_path: Path) -> None:
    answer = read_gpus(library_dir, tmp_path, [FULL + " procs=500:4096,4711:128"])

    [gpu] = answer["gpus"]
    assert (gpu["uuid"], gpu["index"], gpu["model"]) == ("GPU-aaaa", 0, "NVIDIA RTX 4090")
    assert (gpu["total_vram_mib"], gpu["free_vram_mib"]) == (24564, 20000)
    assert (gpu["utilization_pct"], gpu["temperature_c"], gpu["power_w"]) == (87, 71, 312.5)
    assert (gpu["compute_capability"], gpu["mig"], gpu["healthy"], gpu["simulated"]) == ("8.9", False, True, False)
    assert gpu["ours"] == [{"lease": "lease-of-500", "mib": 4096}]
    assert [(other["pid"], other["mib"]) for other in gpu["foreign"]] == [(4711, 128)]
    assert (answer["count"], answer["driver"], answer["cuda"]) == (1, "550.54.14", "12.4")


def test_fields_that_cannot_be_read_are_null(library_dir: Path, tmp_path: Path) -> None:
    [gpu] = read_gpus(library_dir, tmp_path, ["uuid=GPU-aaaa total=24564 free=20000"])["gpus"]

    for field in ("model", "utilization_pct", "temperature_c", "power_w", "compute_capability", "mig"):
        assert gpu[field] is None
    assert gpu["healthy"] is True
    assert gpu["total_vram_mib"] == 24564


def test_use_that_cannot_be_measured_is_null(library_dir: Path, tmp_path: Path) -> None:
    [gpu] = read_gpus(library_dir, tmp_path, [FULL + " procs=500:-"])["gpus"]

    assert gpu["ours"] == [{"lease": "lease-of-500", "mib": None}]


def test_what_others_draw_and_compute_is_told_once_and_the_largest_first(library_dir: Path, tmp_path: Path) -> None:
    [gpu] = read_gpus(library_dir, tmp_path, [FULL + " procs=4711:128,4712:4096 draws=4711:128,4713:300"])["gpus"]

    assert [(other["pid"], other["mib"]) for other in gpu["foreign"]] == [(4712, 4096), (4713, 300), (4711, 128)]


def test_no_list_of_processes_is_without_an_end(library_dir: Path, tmp_path: Path) -> None:
    many = ",".join(f"{5000 + number}:1" for number in range(45))

    [gpu] = read_gpus(library_dir, tmp_path, [f"{FULL} procs={many} draws=4711:900"], most_foreign=20)["gpus"]

    assert len(gpu["foreign"]) == 20
    assert gpu["foreign"][0]["pid"] == 4711


@pytest.mark.parametrize("where", ["procs=!3", "procs=!4", "procs=!999"])
def test_use_of_ours_is_null_where_processes_cannot_be_listed(library_dir: Path, tmp_path: Path, where: str) -> None:
    [gpu] = read_gpus(library_dir, tmp_path, [f"{FULL} {where}"], given=["lease-1"])["gpus"]

    assert gpu["ours"] == [{"lease": "lease-1", "mib": None}]
    assert gpu["foreign"] == []
    assert gpu["healthy"] is True


def test_use_of_ours_is_null_where_process_ids_are_not_the_machines(library_dir: Path, tmp_path: Path) -> None:
    table = [FULL + " procs=500:4096,4711:128"]

    [gpu] = read_gpus(library_dir, tmp_path, table, given=["lease-1"], measurable=False)["gpus"]

    assert (gpu["ours"], gpu["foreign"]) == ([{"lease": "lease-1", "mib": None}], [])


@pytest.mark.parametrize("code", [3, 4, 999], ids=["not supported", "insufficient permissions", "unknown error"])
def test_a_field_that_answers_an_error_costs_only_itself(library_dir: Path, tmp_path: Path, code: int) -> None:
    fields = ("total", "util", "temp", "power", "cc", "mig", "name")
    for field in fields:
        bad = " ".join(f"{field}=!{code}" if pair.startswith(f"{field}=") else pair for pair in FULL.split())
        [first, second] = read_gpus(library_dir, tmp_path, [bad, FULL.replace("aaaa", "bbbb")])["gpus"]
        assert first["healthy"] is True, field
        lost = [name for name, value in first.items() if value is None and second[name] is not None]
        assert lost == WHAT_IS_LOST[field]


WHAT_IS_LOST = {
    "total": ["total_vram_mib", "free_vram_mib"],
    "util": ["utilization_pct"],
    "temp": ["temperature_c"],
    "power": ["power_w"],
    "cc": ["compute_capability"],
    "mig": ["mig"],
    "name": ["model"],
}


def test_a_gpu_that_answers_nothing_is_unhealthy(library_dir: Path, tmp_path: Path) -> None:
    [first, second] = read_gpus(library_dir, tmp_path, ["uuid=GPU-mute fail=999", FULL])["gpus"]

    assert (first["healthy"], second["healthy"]) == (False, True)
    assert "Unknown Error" in first["error"]


def test_a_gpu_of_which_nothing_is_known_is_not_ill(library_dir: Path, tmp_path: Path) -> None:
    [gpu] = read_gpus(library_dir, tmp_path, ["uuid=GPU-plain"])["gpus"]

    assert (gpu["healthy"], gpu["error"], gpu["total_vram_mib"]) == (True, None, None)


def test_a_lost_gpu_is_well_again_with_the_next_good_reading(library_dir: Path, tmp_path: Path) -> None:
    before = read_gpus(library_dir, tmp_path, [FULL + " fail=15"])["gpus"][0]
    after = read_gpus(library_dir, tmp_path, [FULL])["gpus"][0]

    assert (before["healthy"], after["healthy"], after["error"]) == (False, True, None)


def test_a_lost_gpu_is_unhealthy_and_hides_no_other(library_dir: Path, tmp_path: Path) -> None:
    answer = read_gpus(library_dir, tmp_path, ["uuid=GPU-lost fail=15", FULL])

    assert [(gpu["uuid"], gpu["healthy"]) for gpu in answer["gpus"]] == [("GPU-lost", False), ("GPU-aaaa", True)]
    assert answer["gpus"][0]["error"].startswith("The GPU is lost")


def test_a_gpu_without_a_handle_shows_in_the_count(library_dir: Path, tmp_path: Path) -> None:
    answer = read_gpus(library_dir, tmp_path, ["nohandle=15", FULL])

    assert [gpu["uuid"] for gpu in answer["gpus"]] == ["GPU-aaaa"]
    assert answer["count"] == 2


@pytest.mark.parametrize("code", [4, 15, 999])
def test_a_gpu_that_cannot_be_opened_any_more_is_broken_and_not_gone(
    library_dir: Path, tmp_path: Path, code: int
) -> None:
    """Also where no kernel module lists it: it could be opened before."""
    gpus = [FULL, FULL.replace("GPU-aaaa", "GPU-bbbb")]

    before = read_gpus(library_dir, tmp_path, gpus)
    after = read_gpus(library_dir, tmp_path, [f"nohandle={code}", gpus[1]], again=True)
    then = read_gpus(library_dir, tmp_path, gpus, again=True)

    assert [(gpu["uuid"], gpu["healthy"]) for gpu in after["gpus"]] == [("GPU-aaaa", False), ("GPU-bbbb", True)]
    assert after["gpus"][0]["error"] and after["gpus"][0]["model"] == before["gpus"][0]["model"]
    assert (after["count"], after["unopened_reason"]) == (2, None)
    assert [gpu["healthy"] for gpu in then["gpus"]] == [True, True]


def test_one_that_was_never_opened_is_told_by_its_reason(library_dir: Path, tmp_path: Path) -> None:
    answer = read_gpus(library_dir, tmp_path, ["nohandle=8", FULL])

    assert answer["unopened_reason"].startswith("The GPU lacks power")


def test_where_the_driver_counts_anew_nothing_is_remembered(library_dir: Path, tmp_path: Path) -> None:
    gpus = [FULL, FULL.replace("GPU-aaaa", "GPU-bbbb")]

    read_gpus(library_dir, tmp_path, gpus)
    after = read_gpus(library_dir, tmp_path, ["nohandle=15", *gpus], again=True)

    assert [gpu["uuid"] for gpu in after["gpus"]] == ["GPU-aaaa", "GPU-bbbb"]
    assert after["count"] == 3


def test_no_driver_is_no_gpu_and_a_reason(tmp_path: Path) -> None:
    answer = read_gpus(tmp_path, tmp_path, [])

    assert answer["gpus"] == []
    assert answer["error"]


def write(path: Path, content: object) -> Path:
    path.write_text(json.dumps(content))
    return path


def test_simulated_gpus_are_marked_and_read_again(tmp_path: Path) -> None:
    file = write(tmp_path / "gpus.json", {"cuda_version": "12.4", "gpus": [{"uuid": "GPU-1", "total_vram_mib": 12287}]})
    probe = SimulatedProbe(file)

    before = probe.report(NOBODY)
    write(file, {"gpus": [{"uuid": "GPU-1", "total_vram_mib": 12287, "free_vram_mib": 100, "healthy": False}]})
    after = probe.report(NOBODY)

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
    assert SimulatedProbe(file).report(NOBODY).error


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

    [first, second] = read_gpus(library_dir, tmp_path, [mad, FULL])["gpus"]

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

    [first, second] = read_gpus(library_dir, tmp_path, [table, FULL.replace("aaaa", "bbbb")])["gpus"]

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

        name = process_name(named.pid)

    assert name == "\ufffd\ufffd"
