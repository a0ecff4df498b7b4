"""Settings in a file, for the service and for the commands that its owner runs by hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from gpu_worker import config
from gpu_worker.config import WorkerConfig
from gpu_worker.credentials import Credential, CredentialStore
from gpu_worker.doctor.settings import settings
from gpu_worker.errors import ConfigError
from gpu_worker.protocol import DoctorCheck
from gpu_worker.settings_file import FILE_VARIABLE, bring, misspelt, parse


def test_what_the_environment_leaves_open_comes_from_the_file(tmp_path: Path) -> None:
    file = tmp_path / "worker.env"
    file.write_text("# a comment\n; another\n\nMAX_GPU_JOBS=3\nJOB_CPUS=\nWORKER_NAME='gpu 1'\n")
    environ = {"MAX_GPU_JOBS": "1"}

    bring(environ, default=file)

    assert environ == {"MAX_GPU_JOBS": "1", "WORKER_NAME": "gpu 1", "JOB_CPUS": ""}


def test_the_usual_file_may_be_missing_and_a_named_one_may_not(tmp_path: Path) -> None:
    missing, environ = tmp_path / "none.env", {"A": "b"}

    bring(environ, default=missing)

    assert environ == {"A": "b"}
    with pytest.raises(ConfigError, match="not there"):
        bring({FILE_VARIABLE: str(missing)})


def test_a_line_that_is_no_setting_is_named_by_its_number(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Line 2"):
        parse("A=b\nexport B=c\n", tmp_path)


def run(*words: str, file: Path) -> subprocess.CompletedProcess[str]:
    """A command in a shell that knows nothing but where the settings are."""
    return subprocess.run(
        [sys.executable, "-m", "gpu_worker", *words], capture_output=True, text=True, cwd=Path(__file__).parents[2],
        env={FILE_VARIABLE: str(file), "PATH": os.environ["PATH"]},
    )  # fmt: skip


def enrolled(data_dir: Path, name: str = "gpu1") -> None:
    data_dir.mkdir()
    CredentialStore(data_dir).save(Credential(f"ofw_{uuid.uuid4().hex}_{'s' * 43}", name), token="used")


def test_a_command_finds_the_services_data_directory(tmp_path: Path) -> None:
    file = tmp_path / "worker.env"
    file.write_text(f"WORKER_DATA_DIR={tmp_path}/data\n")
    enrolled(tmp_path / "data")

    done = run("pause", "--json", file=file)

    assert json.loads(done.stdout)["paused"] is True
    assert (tmp_path / "data" / "pause.json").exists()


def test_a_command_asks_the_engine_that_the_service_uses(tmp_path: Path) -> None:
    file = tmp_path / "worker.env"
    file.write_text(f"WORKER_DATA_DIR={tmp_path}\nDOCKER_HOST=unix://{tmp_path}/no-engine\n")

    checks = {check["check"]: check for check in json.loads(run("doctor", "--json", file=file).stdout)["checks"]}

    assert checks["engine"]["ok"] is False, "the engine of the file's address does not answer"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("MAX_GPU_JBOS", "MAX_GPU_JBOS: did you mean MAX_GPU_JOBS?"),
        ("max_gpu_jobs", "max_gpu_jobs: did you mean MAX_GPU_JOBS?"),
        ("OPENFACE_ULR", "OPENFACE_ULR: did you mean OPENFACE_URL?"),
        ("FAVOURITE_FILM", "FAVOURITE_FILM is no setting of the worker"),
    ],
)
def test_a_name_that_nobody_reads_is_told_with_the_one_that_may_be_meant(name: str, sentence: str) -> None:
    assert misspelt({name: "3"}, config.names()) == [sentence]


@pytest.mark.parametrize(
    "name",
    ["MAX_GPU_JOBS", "WORKER_TOKEN_FILE", "DOCKER_HOST", "DOCKER_CONTEXT", "BUILDX_BUILDER", "https_proxy", "NO_PROXY",
     "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CUDA_HOME", "NVIDIA_VISIBLE_DEVICES", "LANG", "LC_ALL", "PATH", "TZ",
     "HOME", "GIT_SSL_CAINFO", "PIP_INDEX_URL", "OPENFACE_WORKER_CONTAINER"],
)  # fmt: skip
def test_what_the_worker_and_its_tools_read_is_no_slip(name: str) -> None:
    assert misspelt({name: "x"}, config.names()) == []


def test_the_doctor_tells_of_slips_in_the_file(tmp_path: Path) -> None:
    file, slip = tmp_path / "worker.env", "MAX_GPU_JBOS=3\n"
    mine, environ = WorkerConfig(url="", data_dir=tmp_path), {FILE_VARIABLE: str(file)}
    file.write_text(f"MAX_CPU_JOBS=3\n{slip}")

    [bad] = settings(mine, environ)
    file.write_text("MAX_CPU_JOBS=3\n")
    [good] = settings(mine, environ)

    assert (bad.ok, bad.detail) == (None, f"{file}: MAX_GPU_JBOS: did you mean MAX_GPU_JOBS?")
    assert good == DoctorCheck("settings", True, f"{file}: every name is known")


def test_the_doctor_tells_of_a_name_that_is_not_the_workers(tmp_path: Path) -> None:
    enrolled(tmp_path / "data", "gpu1")
    other = WorkerConfig(url="", data_dir=tmp_path / "data", name="gpu2")

    [check] = settings(other, {})

    assert (check.ok, check.detail) == (
        None,
        "WORKER_NAME is gpu2, but this worker was enrolled as gpu1, and stays that",
    )
    assert settings(WorkerConfig(url="", data_dir=tmp_path / "data", name="gpu1"), {}) == []


def test_a_file_of_settings_that_is_none_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "nul.env").write_bytes(b"A=b\nC=d\0e\n")
    (tmp_path / "binary.env").write_bytes(b"\xff\xfe")

    for path, said in (
        (tmp_path / "nul.env", "Line 2"),
        (tmp_path / "binary.env", "cannot be read"),
        (tmp_path, "Is a directory"),
        ("/" + "x" * 5000, "File name too long"),
    ):
        with pytest.raises(ConfigError, match=said) as refused:
            bring({FILE_VARIABLE: str(path)})
        assert len(str(refused.value)) < 300
