"""A GPU that is split into MIG devices: the whole is shown, and each of its parts is a GPU of its own."""

from __future__ import annotations

from pathlib import Path

from tests.gpu_worker.nvml import FULL, read_gpus

WHOLE = "uuid=GPU-a100 name=NVIDIA_A100 total=40960 free=30000 temp=55 power=200000 cc=8.0 mig=1 util=!3"


def part(number: int, fields: str = "total=9856 free=9000") -> str:
    return f"parent=GPU-a100 uuid=MIG-{number} name=NVIDIA_A100_MIG_2g.10gb {fields}"


def test_the_whole_is_told_as_split_and_its_parts_as_gpus(library_dir: Path, tmp_path: Path) -> None:
    answer = read_gpus(library_dir, tmp_path, [WHOLE, part(1), part(2), part(3), FULL])

    assert [(gpu["uuid"], gpu["mig"]) for gpu in answer["gpus"]] == [
        ("GPU-a100", True), ("MIG-1", False), ("MIG-2", False), ("MIG-3", False), ("GPU-aaaa", False),
    ]  # fmt: skip
    first = answer["gpus"][1]
    assert (first["model"], first["total_vram_mib"], first["free_vram_mib"]) == ("NVIDIA A100 MIG 2g.10gb", 9856, 9000)


def test_a_part_takes_over_what_only_the_whole_knows(library_dir: Path, tmp_path: Path) -> None:
    [whole, first] = read_gpus(library_dir, tmp_path, [WHOLE, part(1)])["gpus"]

    assert (first["index"], first["temperature_c"], first["compute_capability"]) == (whole["index"], 55, "8.0")
    assert (first["power_w"], first["utilization_pct"]) == (None, None), "the whole's are not the part's"


def test_a_process_is_told_once_by_the_part_that_it_runs_on(library_dir: Path, tmp_path: Path) -> None:
    everything = f"{WHOLE} procs=500:4096,4711:512"

    answer = read_gpus(library_dir, tmp_path, [everything, part(1, "procs=500:4096"), part(2, "procs=4711:512")])

    [whole, first, second] = answer["gpus"]
    assert (whole["ours"], whole["foreign"]) == ([], [])
    assert (first["ours"], first["foreign"]) == ([{"lease": "lease-of-500", "mib": 4096}], [])
    assert (second["ours"], [other["pid"] for other in second["foreign"]]) == ([], [4711])


def test_memory_that_may_not_be_read_is_not_known_and_hides_nothing(library_dir: Path, tmp_path: Path) -> None:
    answer = read_gpus(library_dir, tmp_path, [WHOLE.replace("total=40960", "total=!4"), part(1, "total=!4"), part(2)])

    assert [(gpu["total_vram_mib"], gpu["healthy"]) for gpu in answer["gpus"]] == [
        (None, True), (None, True), (9856, True),
    ]  # fmt: skip


def test_the_parts_of_a_lost_gpu_are_lost(library_dir: Path, tmp_path: Path) -> None:
    [whole, first, other] = read_gpus(library_dir, tmp_path, [WHOLE.replace("temp=55", "temp=!15"), part(1), FULL])[
        "gpus"
    ]

    assert (whole["healthy"], first["healthy"], other["healthy"]) == (False, False, True)
    assert first["error"] == whole["error"]


def test_parts_count_so_that_a_gpu_that_is_missing_still_shows(library_dir: Path, tmp_path: Path) -> None:
    answer = read_gpus(library_dir, tmp_path, [WHOLE, part(1), part(2), "nohandle=15"])

    assert (len(answer["gpus"]), answer["count"]) == (3, 4)


def test_a_split_gpu_without_parts_is_told_all_the_same(library_dir: Path, tmp_path: Path) -> None:
    [whole] = read_gpus(library_dir, tmp_path, [WHOLE])["gpus"]

    assert (whole["uuid"], whole["mig"], whole["total_vram_mib"]) == ("GPU-a100", True, 40960)
