"""Quiet: the owner of the machine uses a GPU, so no GPU job is taken; CPU jobs are, and running apps go on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gpu_worker.config import load
from gpu_worker.errors import ConfigError
from gpu_worker.gpu_quiet import QUIET_AFTER_SECONDS, Quiet, others_mib
from gpu_worker.protocol import ForeignProcess, Gpu, GpuUse
from tests.gpu_worker.control_plane import ControlPlane
from tests.gpu_worker.worker import WEB_APP, WorkerProcess, eventually, make_repository

GAME = ForeignProcess(4711, "game.exe", 9000)
DESKTOP = ForeignProcess(900, "Xorg", 400)


def card(*foreign: ForeignProcess, used: int = 0, ours: tuple[GpuUse, ...] = (), **changes: object) -> Gpu:
    facts: dict[str, object] = {"index": 0, "total_vram_mib": 24564, "free_vram_mib": 24564 - used}
    return Gpu(uuid="GPU-1", foreign=foreign, ours=ours, **{**facts, **changes})  # type: ignore[arg-type]


def reason(*gpus: Gpu, above_mib: int | None = 0) -> str | None:
    return Quiet(above_mib).reason(gpus, now=0.0)


def test_it_is_off_unless_it_is_asked_for() -> None:
    assert reason(card(GAME, used=9400), above_mib=None) is None


def test_a_game_keeps_gpu_jobs_away_and_is_named() -> None:
    assert reason(card(GAME, DESKTOP, used=9400)) == "GPU 0 is in use by its owner: game.exe (pid 4711)."


def test_a_desktop_does_not() -> None:
    assert reason(card(DESKTOP, used=400)) is None


def test_what_a_desktop_may_hold_grows_with_the_card() -> None:
    assert reason(card(used=2000)) is None
    assert reason(card(used=2000, total_vram_mib=12288, free_vram_mib=10288)) is not None


def test_use_of_nobody_who_is_listed_counts_too() -> None:
    assert reason(card(used=9000)) == "GPU 0 is in use by its owner."


def test_our_own_use_does_not_count() -> None:
    assert others_mib(card(DESKTOP, used=20400, ours=(GpuUse("lease-1", 20000),))) == 400
    assert reason(card(used=20400, ours=(GpuUse("lease-1", 20000),))) is None


def test_where_our_own_use_is_not_known_only_what_is_listed_counts() -> None:
    assert reason(card(used=20400, ours=(GpuUse("lease-1", None),))) is None
    assert reason(card(GAME, used=20400, ours=(GpuUse("lease-1", None),))) is not None


def test_one_busy_card_is_enough() -> None:
    assert reason(card(DESKTOP), card(GAME, used=9000, index=1)) == (
        "GPU 1 is in use by its owner: game.exe (pid 4711)."
    )


def test_the_owner_may_draw_the_line_elsewhere() -> None:
    assert reason(card(DESKTOP, used=400), above_mib=300) is not None
    assert reason(card(GAME, used=9000), above_mib=10000) is None


def test_it_stays_quiet_for_a_while_after_the_last_sign_of_use() -> None:
    quiet = Quiet(0)
    busy, free = [card(GAME, used=9000)], [card(DESKTOP, used=400)]

    said = quiet.reason(busy, now=100.0)

    assert quiet.reason(free, now=100.0 + QUIET_AFTER_SECONDS - 1) == said
    assert quiet.reason(free, now=100.0 + QUIET_AFTER_SECONDS) is None


def test_a_split_card_as_a_whole_says_nothing_of_its_use() -> None:
    assert reason(card(used=20000, mig=True)) is None


def test_a_worker_whose_owner_plays_takes_cpu_jobs_only_and_tells_why(
    plane: ControlPlane, make_worker: Callable[..., WorkerProcess], tmp_path: Path
) -> None:
    file = tmp_path / "gpus.json"
    playing = {"uuid": "GPU-1", "total_vram_mib": 24564, "free_vram_mib": 14000,
               "foreign": [{"pid": 4711, "name": "game.exe", "mib": 9000}]}  # fmt: skip
    file.write_text(json.dumps({"gpus": [playing]}))
    revision = make_repository(plane.git_root, "web", {"app.py": WEB_APP})
    for_gpu = plane.queue_job("web", revision, kind="gpu", gpus=["GPU-1"], app_file="app.py")
    for_cpu = plane.queue_job("web", revision, kind="cpu", app_file="app.py")
    worker = make_worker(OPENFACE_SIMULATE_GPUS=str(file), QUIET_WHEN_GPU_BUSY="true").start()

    eventually(lambda: plane.state(for_cpu) == "running", what="the CPU job")

    assert plane.lease_of(for_gpu) is None
    told = plane.registers[-1]["capabilities"]["gpu_paused_reason"]
    assert told == "GPU 0 is in use by its owner: game.exe (pid 4711)."
    assert plane.beats[-1]["accepting"] is True
    status = worker.data_dir / "status.json"
    assert json.loads(status.read_text())["no_gpu_jobs"] == told


@pytest.mark.parametrize(("text", "above_mib"), [(None, None), ("false", None), ("true", 0), ("ON", 0), ("3000", 3000)])
def test_its_setting_is_a_word_or_a_size(text: str | None, above_mib: int | None) -> None:
    environ = {"OPENFACE_URL": "http://openface.lan:8090", **({"QUIET_WHEN_GPU_BUSY": text} if text else {})}

    assert load(environ).quiet_above_mib == above_mib


@pytest.mark.parametrize("text", ["maybe", "0", "-1", "3 GB"])
def test_another_setting_is_a_sentence(text: str) -> None:
    with pytest.raises(ConfigError, match="QUIET_WHEN_GPU_BUSY"):
        load({"OPENFACE_URL": "http://openface.lan:8090", "QUIET_WHEN_GPU_BUSY": text})
