"""Settings in a file, for the service and for the commands that its owner runs by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_worker.errors import ConfigError
from gpu_worker.settings_file import FILE_VARIABLE, parse, with_settings_file


def test_what_the_environment_leaves_open_comes_from_the_file(tmp_path: Path) -> None:
    file = tmp_path / "worker.env"
    file.write_text("# a comment\n; another\n\nMAX_GPU_JOBS=3\nJOB_CPUS=\nWORKER_NAME='gpu 1'\n")

    merged = with_settings_file({"MAX_GPU_JOBS": "1"}, default=file)

    assert (merged["MAX_GPU_JOBS"], merged["WORKER_NAME"], merged["JOB_CPUS"]) == ("1", "gpu 1", "")


def test_the_usual_file_may_be_missing_and_a_named_one_may_not(tmp_path: Path) -> None:
    missing = tmp_path / "none.env"

    assert with_settings_file({"A": "b"}, default=missing) == {"A": "b"}
    with pytest.raises(ConfigError, match="not there"):
        with_settings_file({FILE_VARIABLE: str(missing)})


def test_a_line_that_is_no_setting_is_named_by_its_number(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Line 2"):
        parse("A=b\nexport B=c\n", tmp_path)


def test_a_command_finds_the_services_data_directory(tmp_path: Path) -> None:
    file = tmp_path / "worker.env"
    file.write_text(f"WORKER_DATA_DIR={tmp_path}/data\n")

    done = subprocess.run(
        [sys.executable, "-m", "gpu_worker", "pause", "--json"], capture_output=True, text=True, check=True,
        cwd=Path(__file__).parents[2], env={FILE_VARIABLE: str(file)},
    )  # fmt: skip

    assert json.loads(done.stdout)["paused"] is True
    assert (tmp_path / "data" / "pause.json").exists()
