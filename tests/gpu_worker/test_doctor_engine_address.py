"""Containers run where images are built: SDK and command line look at one engine, and the doctor says at which."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpu_worker.config import WorkerConfig
from gpu_worker.containers.connection import Connection
from gpu_worker.doctor import engine
from gpu_worker.doctor.engine import EngineFacts
from gpu_worker.engine_address import LOCAL, engine_address
from gpu_worker.errors import EngineSilent
from tests.gpu_worker.engine_relay import EngineRelay

Make = Callable[..., Path]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes contexts as `docker context create` does; nothing else says where the engine is."""
    directory = tmp_path / "docker"
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(directory))

    def make(name: str, host: str, *, chosen: bool = False, tls: bool = False) -> Path:
        place = hashlib.sha256(name.encode()).hexdigest()
        meta = directory / "contexts" / "meta" / place
        meta.mkdir(parents=True)
        endpoint = {"Host": host, "SkipTLSVerify": False}
        (meta / "meta.json").write_text(json.dumps({"Name": name, "Metadata": {}, "Endpoints": {"docker": endpoint}}))
        if tls:
            (directory / "contexts" / "tls" / place / "docker").mkdir(parents=True)
        if chosen:
            (directory / "config.json").write_text(json.dumps({"currentContext": name}))
        return directory

    return make


def test_what_names_the_engine_counts_in_the_order_of_the_command_line(
    context: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert str(engine_address()) == LOCAL
    context("rootless", "unix:///run/user/1000/docker.sock", chosen=True)
    context("lab", "tcp://10.0.0.9:2376", tls=True)
    assert str(engine_address()) == "unix:///run/user/1000/docker.sock (context rootless)"

    monkeypatch.setenv("DOCKER_CONTEXT", "lab")
    lab = engine_address()
    monkeypatch.setenv("DOCKER_CONTEXT", "default")
    default = engine_address()
    monkeypatch.setenv("DOCKER_CONTEXT", "lab")
    monkeypatch.setenv("DOCKER_HOST", "unix:///elsewhere.sock")

    assert (str(lab), lab.verify, lab.tls_dir is not None) == ("tcp://10.0.0.9:2376 (context lab)", True, True)
    assert str(default) == LOCAL
    assert str(engine_address()) == "unix:///elsewhere.sock"


def test_a_context_that_is_not_there_is_a_sentence(context: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONTEXT", "gone")

    with pytest.raises(EngineSilent, match="There is no Docker context 'gone'"):
        Connection()()

    check = engine.engine(engine.ask(), WorkerConfig(url=""))
    assert (check.ok, "no Docker context 'gone'" in str(check.detail)) == (False, True)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"Endpoints": {"docker": 1}}'])
def test_a_context_that_cannot_be_read_is_a_sentence(
    context: Make, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    directory = context("odd", "unix:///x")
    [meta] = directory.glob("contexts/meta/*/meta.json")
    meta.write_text(content)
    monkeypatch.setenv("DOCKER_CONTEXT", "odd")

    with pytest.raises(EngineSilent, match="The Docker context 'odd'"):
        engine_address()


def test_an_engine_of_a_context_that_does_not_answer_is_named(context: Make, tmp_path: Path) -> None:
    directory = context("lab", f"unix://{tmp_path}/nobody.sock")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "WORKER_DATA_DIR": str(tmp_path)}
    environment |= {"DOCKER_CONFIG": str(directory), "DOCKER_CONTEXT": "lab"}

    done = subprocess.run(
        [sys.executable, "-m", "gpu_worker", "doctor", "--json"], env=environment, cwd=ROOT, capture_output=True
    )

    check = next(one for one in json.loads(done.stdout)["checks"] if one["check"] == "engine")
    assert check["ok"] is False
    assert f"at unix://{tmp_path}/nobody.sock (context lab) does not answer" in check["detail"]


@pytest.mark.docker
def test_the_engine_of_a_context_is_the_one_for_both(context: Make, tmp_path: Path) -> None:
    with EngineRelay(tmp_path / "lab.sock") as relay:
        context("lab", f"unix://{relay.path}", chosen=True)

        facts = engine.ask()
        checks = engine.engine(facts, WorkerConfig(url="")), engine.buildkit(facts)

    assert f"at unix://{relay.path} (context lab)" in str(checks[0].detail)
    assert checks[1].ok is True


@pytest.mark.parametrize(("answer", "said"), [("THE:OTHER:ONE", "THE:OTHER:ONE"), ("", "it reaches none")])
def test_a_command_line_that_builds_elsewhere_is_bad(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, said: str
) -> None:
    program = tmp_path / "docker"
    program.write_text(f"#!/bin/sh\necho '{answer}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    check = engine.buildkit(EngineFacts({"ID": "OURS"}, address="unix:///here.sock"))

    assert (check.ok, "DOCKER_HOST" in str(check.remedy)) == (False, True)
    assert f"another engine ({said}) than the one at unix:///here.sock" in str(check.detail)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"DOCKER_HOST": "tcp://[::1"}, "The engine's address 'tcp://[::1' is none"),
        ({"DOCKER_HOST": "ssh://gpu1.lan"}, "does not go through ssh"),
        ({"DOCKER_HOST": "tcp://127.0.0.1:port"}, "The engine's address 'tcp://127.0.0.1:port' is none"),
        ({"DOCKER_TLS_VERIFY": "1"}, "does not answer"),
    ],
)
def test_an_address_that_cannot_be_is_a_sentence_and_the_fault_of_one_check_alone(
    tmp_path: Path, settings: dict[str, str], said: str
) -> None:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "WORKER_DATA_DIR": str(tmp_path), **settings}

    done = subprocess.run(
        [sys.executable, "-m", "gpu_worker", "doctor", "--json"], env=environment, cwd=ROOT, capture_output=True
    )

    assert b"Traceback" not in done.stderr
    checks = {check["check"]: check for check in json.loads(done.stdout)["checks"]}
    assert (checks["engine"]["ok"], said in checks["engine"]["detail"]) == (False, True), checks
    assert checks["buildkit"]["ok"] is not False
