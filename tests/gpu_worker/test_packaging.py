"""What a GPU machine installs: the package alone, the systemd unit, and the compose files."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpu_worker import answer
from gpu_worker.config import load
from gpu_worker.settings_file import parse

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "packaging" / "openface-gpu-worker.service"
SETTINGS = ROOT / "packaging" / "worker.env"
COMPOSE = ROOT / "compose"
DOCUMENTED = (ROOT / "docs" / "worker.md").read_text()
# Read by others than the worker: by compose itself, or by the NVIDIA toolkit.
NOT_OURS = {"NVIDIA_DRIVER_CAPABILITIES"}


def test_the_worker_installs_alone_and_brings_nothing_of_the_server(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "gpu_worker", tmp_path / "gpu_worker", ignore=shutil.ignore_patterns("__pycache__"))
    venv.create(tmp_path / "venv")
    python = str(tmp_path / "venv" / "bin" / "python")

    done = subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", f"{tmp_path}[worker]"],
        capture_output=True, text=True,
    )  # fmt: skip

    if done.returncode != 0 and re.search(r"(?i)connection|no matching distribution|name resolution", done.stderr):
        pytest.skip("no package index is reached from here")
    assert done.returncode == 0, done.stderr
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "list", "--format", "json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    installed = {package["name"].lower() for package in json.loads(listed.stdout)}
    assert {"docker", "requests", "nvidia-ml-py", "openface-remote-gpu"} <= installed
    assert installed.isdisjoint({"django", "channels", "djangorestframework", "psycopg", "aiohttp", "uvicorn"})
    command = [str(tmp_path / "venv" / "bin" / "openface-gpu-worker"), "status", "--json"]
    told = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=tmp_path, env={"WORKER_DATA_DIR": str(tmp_path / "d")}
    )
    assert json.loads(told.stdout)["running"] is False


def test_the_unit_does_not_start_again_what_must_not_go_on() -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(UNIT)

    service = unit["Service"]
    final = {int(code) for code in service["RestartPreventExitStatus"].split()}
    assert final == {answer.EXIT_CONFIG, answer.EXIT_FINAL}
    assert service["Restart"] == "on-failure"
    assert service["ExecStart"].endswith("/openface-gpu-worker run")


def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not here")
    unit = tmp_path / UNIT.name
    unit.write_text(re.sub(r"(?m)^ExecStart=.*$", "ExecStart=/bin/true", UNIT.read_text()))

    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True)

    assert (done.returncode, [line for line in done.stderr.splitlines() if UNIT.name in line]) == (0, [])


def test_the_example_settings_of_the_unit_work() -> None:
    settings = parse(SETTINGS.read_text(), SETTINGS)

    config = load(settings)

    assert config.gateway_url(0) == settings["WORKER_PUBLIC_URL"]
    assert str(config.data_dir) == "/var/lib/openface-gpu-worker"
    assert [name for name in settings if f"`{name}`" not in DOCUMENTED] == []


@pytest.mark.parametrize("file", ["gpu-worker.yml", "cpu-worker.yml"])
def test_both_compose_programs_read_the_files(file: str) -> None:
    command = compose_command()

    service = composed(command, file)["services"]["gpu-worker"]

    mounts = [str(volume) for volume in service["volumes"]]
    assert any("/var/run/docker.sock" in mount for mount in mounts)
    assert service["pid"] == "host"
    assert service["restart"] == "unless-stopped"
    environment = service["environment"]
    assert environment["OPENFACE_URL"] == "http://192.168.1.50:8090"
    assert [name for name in environment if name not in NOT_OURS and f"`{name}`" not in DOCUMENTED] == []
    if file == "gpu-worker.yml":
        [devices] = service["deploy"]["resources"]["reservations"]["devices"]
        assert (devices["driver"], devices["capabilities"]) == ("nvidia", ["gpu"])
        assert devices["count"] in ("all", -1)
        assert environment["NVIDIA_DRIVER_CAPABILITIES"] == "utility"
    else:
        assert "deploy" not in service


def test_every_documented_setting_can_be_made_in_a_container() -> None:
    table = DOCUMENTED.partition("## Settings")[2].partition("## ")[0]
    documented = {name for row in re.findall(r"(?m)^\| (`.*?) \|", table) for name in re.findall(r"`(\w+)`", row)}
    of_the_container = {
        "WORKER_ENROLLMENT_TOKEN_FILE",
        "WORKER_DATA_DIR",
        "OPENFACE_EXECUTOR",
        "OPENFACE_SIMULATE_GPUS",
    }

    told = "".join((COMPOSE / file).read_text() for file in ("cpu-worker.yml", "gpu-worker.yml"))

    assert len(documented) > 20
    assert sorted(name for name in documented - of_the_container if not re.search(rf"\b{name}\b", told)) == []


def test_the_files_say_what_is_missing_from_the_settings() -> None:
    done = subprocess.run(
        [*compose_command(), "--file", str(COMPOSE / "gpu-worker.yml"), "config"],
        capture_output=True, text=True, env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
    )  # fmt: skip

    assert done.returncode != 0
    assert "compose/gpu-worker.env" in done.stderr


def test_the_image_sets_only_variables_that_the_worker_knows() -> None:
    text = re.sub(r"\\\n\s*", "", (COMPOSE / "gpu-worker.Dockerfile").read_text())
    names = [pair.partition("=")[0] for line in re.findall(r"(?m)^ENV (.*)$", text) for pair in line.split()]

    ours = [name for name in names if name.startswith(("WORKER_", "GPU_WORKER_", "OPENFACE_"))]

    assert ours == ["WORKER_DATA_DIR", "GPU_WORKER_BIND_ADDRESS", "OPENFACE_WORKER_CONTAINER"]


def compose_command() -> list[str]:
    for words in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(words[0]) and subprocess.run([*words, "version"], capture_output=True).returncode == 0:
            return words
    pytest.skip("neither docker compose nor docker-compose is here")


def composed(command: list[str], file: str) -> dict[str, Any]:
    done = subprocess.run(
        [*command, "--file", str(COMPOSE / file), "--env-file", str(COMPOSE / "gpu-worker.env.example"), "config"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(yaml.safe_load(done.stdout))
