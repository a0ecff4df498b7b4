"""Settings come from the environment, flags win, and a wrong one is a sentence that names it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_worker.config import _token_file, load, names
from gpu_worker.errors import ConfigError
from gpu_worker.job_limits import LimitDefaults

URL = {"OPENFACE_URL": "http://openface.lan:8090"}


def test_the_owners_names_work() -> None:
    config = load(
        {
            "OPENFACE_URL": "https://openface.lan/", "WORKER_NAME": "gpu1", "WORKER_TOKEN_FILE": "/run/token",
            "WORKER_PUBLIC_URL": "http://10.0.0.7:8787", "GPU_WORKER_BIND_ADDRESS": "10.0.0.7",
            "GPU_WORKER_PORT": "9000", "MAX_GPU_JOBS": "2", "MAX_CPU_JOBS": "0", "WORKER_DATA_DIR": "/srv/worker",
        }
    )  # fmt: skip

    assert config.url == "https://openface.lan"
    assert (config.name, config.token_file) == ("gpu1", Path("/run/token"))
    assert (config.bind_address, config.gateway_port) == ("10.0.0.7", 9000)
    assert (config.max_gpu_jobs, config.max_cpu_jobs) == (2, 0)
    assert config.data_dir == Path("/srv/worker")
    assert config.gateway_url(9000) == "http://10.0.0.7:8787"


def test_the_defaults_are_careful() -> None:
    config = load(URL)

    assert (config.bind_address, config.gateway_port) == ("127.0.0.1", 8787)
    assert (config.max_gpu_jobs, config.max_cpu_jobs) == (1, 2)
    assert (config.executor, config.verify_tls) == ("docker", True)
    assert config.gateway_url(8787) == "http://127.0.0.1:8787"


def test_the_limits_of_jobs_can_be_set() -> None:
    config = load({**URL, "JOB_MEMORY_MIB": "2048", "JOB_CPUS": "1.5", "JOB_PIDS": "300"})

    assert config.limit_defaults == LimitDefaults(memory_mib=2048, cpus=1.5, pids=300)
    assert load(URL).limit_defaults == LimitDefaults(memory_mib=None, cpus=None, pids=1024)


def test_the_first_token_name_wins_over_its_alias() -> None:
    config = load({**URL, "WORKER_ENROLLMENT_TOKEN_FILE": "/a", "WORKER_TOKEN_FILE": "/b"})

    assert config.token_file == Path("/a")


def test_the_alias_may_name_a_file_that_is_not_there_where_the_usual_one_is(tmp_path: Path) -> None:
    """The owner's compose file sets one name, and the guide says to save the token under the other."""
    usual = tmp_path / "openface-worker-enrollment-token"
    alias = {"WORKER_TOKEN_FILE": str(tmp_path / "openface-worker-token")}
    assert _token_file(alias, usual) == tmp_path / "openface-worker-token"

    usual.touch()

    assert _token_file(alias, usual) == usual
    (tmp_path / "openface-worker-token").touch()
    assert _token_file(alias, usual) == tmp_path / "openface-worker-token"


def test_who_listens_everywhere_proposes_no_address() -> None:
    listening = {**URL, "GPU_WORKER_BIND_ADDRESS": "0.0.0.0"}

    assert load(listening).gateway_url(8787) is None
    assert load({**listening, "WORKER_PUBLIC_URL": "http://10.0.0.7:8787"}).gateway_url(8787) == "http://10.0.0.7:8787"


def test_a_command_that_calls_nobody_needs_no_address_of_the_control_plane() -> None:
    assert load({}, local=True).url == ""
    with pytest.raises(ConfigError, match="OPENFACE_URL"):
        load({"OPENFACE_URL": "nonsense"}, local=True)


def test_a_flag_wins_over_the_environment() -> None:
    assert load({**URL, "MAX_CPU_JOBS": "3"}, {"MAX_CPU_JOBS": "5", "WORKER_NAME": None}).max_cpu_jobs == 5


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({}, "OPENFACE_URL"),
        ({"OPENFACE_URL": "openface.lan:8090"}, "OPENFACE_URL"),
        ({"OPENFACE_URL": "http://user:pw@openface.lan"}, "OPENFACE_URL"),
        ({"OPENFACE_URL": "http://[::1"}, "OPENFACE_URL"),
        ({"OPENFACE_URL": "http://openface.lan:99999"}, "OPENFACE_URL"),
        ({"OPENFACE_URL": "http://openface.lan:abc"}, "OPENFACE_URL"),
        ({"OPENFACE_URL": "http://openface.lan:0"}, "OPENFACE_URL"),
        ({"OPENFACE_URL": "http://open face.lan"}, "OPENFACE_URL"),
        ({**URL, "WORKER_PUBLIC_URL": "10.0.0.7"}, "WORKER_PUBLIC_URL"),
        ({**URL, "WORKER_PUBLIC_URL": "http://[::1"}, "WORKER_PUBLIC_URL"),
        ({**URL, "WORKER_PUBLIC_URL": "http://10.0.0.7:99999"}, "WORKER_PUBLIC_URL"),
        ({**URL, "GPU_WORKER_BIND_ADDRESS": "everywhere"}, "GPU_WORKER_BIND_ADDRESS"),
        ({**URL, "GPU_WORKER_PORT": "70000"}, "GPU_WORKER_PORT"),
        ({**URL, "MAX_GPU_JOBS": "-1"}, "MAX_GPU_JOBS"),
        ({**URL, "MAX_CPU_JOBS": "many"}, "MAX_CPU_JOBS"),
        ({**URL, "OPENFACE_VERIFY_TLS": "perhaps"}, "OPENFACE_VERIFY_TLS"),
        ({**URL, "OPENFACE_CA_FILE": "/does/not/exist"}, "OPENFACE_CA_FILE"),
        ({**URL, "OPENFACE_EXECUTOR": "podman"}, "executor"),
        ({**URL, "JOB_MEMORY_MIB": "5"}, "JOB_MEMORY_MIB"),
        ({**URL, "JOB_MEMORY_MIB": "8g"}, "JOB_MEMORY_MIB"),
        ({**URL, "JOB_CPUS": "all"}, "JOB_CPUS"),
        ({**URL, "JOB_CPUS": "0"}, "JOB_CPUS"),
        ({**URL, "JOB_CPUS": "nan"}, "JOB_CPUS"),
        ({**URL, "JOB_PIDS": "0"}, "JOB_PIDS"),
    ],
)
def test_a_wrong_setting_is_named(environ: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        load(environ)


@pytest.mark.parametrize("url", ["http://[fd00::7]:8090", "https://a-b.example/openface", "http://10.0.0.7"])
def test_usual_addresses_are_taken(url: str) -> None:
    assert load({"OPENFACE_URL": url, "WORKER_PUBLIC_URL": url}).url == url


def test_every_name_that_the_worker_reads_is_documented() -> None:
    table = (
        (Path(__file__).parents[2] / "docs" / "worker.md").read_text().partition("## Settings")[2].partition("## ")[0]
    )
    documented = {name for row in re.findall(r"(?m)^\| (`.*?) \|", table) for name in re.findall(r"`(\w+)`", row)}

    assert {"OPENFACE_URL", "WORKER_TOKEN_FILE", "BUILD_PIDS", "DISK_FLOOR_MIB"} <= names()
    assert sorted(names() - documented) == []


def test_a_wrong_setting_ends_the_command_with_2() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gpu_worker", "run"], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip

    assert done.returncode == 2
    assert done.stderr.startswith("OPENFACE_URL is not set")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["MAX_GPU_JOBS", "BUILD_PIDS", "QUIET_WHEN_GPU_BUSY", "JOB_MEMORY_MIB"])
def test_a_number_of_more_digits_than_anybody_reads_is_a_sentence(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name} is '1{{80}}'…") as refused:
        load({**URL, name: "1" * 5000})

    assert len(str(refused.value)) < 200


BAD = {
    "too long": "/" + "x" * 5000,
    "a part too long": "/tmp/" + "y" * 300,
    "with NUL": "/tmp/a\0b",
    "a directory": "/tmp",
    "below a file": "/etc/passwd/x",
    "not there": "/nonexistent/x",
    "digits without end": "9" * 6000,
    "negative": "-1",
    "a word": "Maybe Not",
    "other digits": "٣",
}
# What may be anything, or is only used where it is there: no value of it is wrong before that.
FREE = {
    "WORKER_NAME": set(BAD),
    "WORKER_DATA_DIR": {"a directory", "below a file", "not there", "negative", "a word", "other digits"},
    "WORKER_ENROLLMENT_TOKEN_FILE": {"a directory", "below a file", "not there", "negative", "a word", "other digits"},
    "WORKER_TOKEN_FILE": {"a directory", "below a file", "not there", "negative", "a word", "other digits"},
    "LENT_IMAGES": set(),
}


@pytest.mark.parametrize("name", sorted(names()))
def test_each_setting_refuses_what_it_cannot_be_by_its_name_in_a_short_sentence(name: str) -> None:
    for what, value in BAD.items():
        if what in FREE.get(name, ()):
            load({**URL, name: value})
            continue
        with pytest.raises(ConfigError, match=rf"^{name} ") as refused:
            load({**URL, name: value})
        assert len(str(refused.value)) < 300, what


def test_a_file_that_may_not_be_read_is_told_with_the_name_of_its_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looped = tmp_path / "loop"
    looped.symlink_to(looped)
    closed = tmp_path / "closed.pem"
    closed.touch()

    def refuse(self: Path, *_: object) -> None:  # root may read everything
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    for name in ("OPENFACE_CA_FILE", "OPENFACE_PIP_CONFIG", "OPENFACE_APT_SOURCES", "OPENFACE_SIMULATE_GPUS"):
        with pytest.raises(ConfigError, match=rf"^{name} names .*, which cannot be read: Permission denied"):
            load({**URL, name: str(closed)})
        with pytest.raises(ConfigError, match=rf"^{name} names "):
            load({**URL, name: str(looped)})


@pytest.mark.parametrize("flag", ["--ca-file", "--data-dir", "--token-file", "--simulate-gpus"])
def test_a_path_that_is_none_ends_a_command_with_2_and_no_traceback(flag: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gpu_worker", "status", flag, "/" + "x" * 5000], env={"PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip

    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert "File name too long" in done.stderr
