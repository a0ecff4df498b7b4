"""Who asks for JSON gets one object, also when the command fails; the sentence for people stays on stderr."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpu_worker.__main__ import main
from gpu_worker.answer import Failure
from gpu_worker.credentials import Credential, CredentialStore
from gpu_worker.data_dir import LEAVE, LOCK_NAME, RUN, DataDirLock
from gpu_worker.errors import CredentialInvalid, EngineSilent, Revoked, Superseded, WireError
from gpu_worker.reasons import reason_of
from tests.gpu_worker.commands_of_owner import Command
from tests.gpu_worker.control_plane import ControlPlane
from tests.gpu_worker.worker import WorkerProcess, free_port

Make = Callable[..., WorkerProcess]
Said = tuple[int, dict[str, Any], str]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    def said(*words: str) -> Said:
        """Exit code, the object on stdout, the text on stderr."""
        code = main([*words, "--json"])
        captured = capsys.readouterr()
        return code, json.loads(captured.out), captured.err

    return said


@pytest.mark.parametrize("words", [("prune",), ("leave", "--url", "http://127.0.0.1:9"), ("pause",), ("resume",)])
def test_what_cannot_work_is_an_object_too(say: Callable[..., Said], tmp_path: Path, words: tuple[str]) -> None:
    code, told, text = say(*words, "--data-dir", str(tmp_path / "none"))

    assert (code, told["exit"], told["code"]) == (2, 2, "cannot_work")
    assert told["error"] == text.strip()
    assert not (tmp_path / "none").exists()


def test_a_wrong_argument_is_an_object_too(say: Callable[..., Said]) -> None:
    code, told, text = say("prune", "--everything")

    assert (code, told) == (
        2,
        {"error": "unrecognized arguments: --everything", "code": "wrong_argument", "exit": 2},
    )
    assert text.startswith("usage: openface-gpu-worker")


def test_who_asks_for_no_json_gets_none(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["resume", "--data-dir", str(tmp_path / "none")]) == 2

    assert capsys.readouterr().out == ""


def test_no_answer_of_the_control_plane_is_an_object_too(
    plane: ControlPlane, make_worker: Make, command: Command
) -> None:
    worker = make_worker(OPENFACE_URL=f"http://127.0.0.1:{free_port()}")

    told = command(worker, "enroll", code=1)

    assert (told["code"], told["exit"]) == ("unreachable", 1)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """The data directory of a worker that was enrolled once."""
    credential = Credential(f"ofw_{'a' * 32}_{'b' * 43}", "gpu1")
    CredentialStore(tmp_path).save(credential, token="used")
    return tmp_path


@pytest.mark.parametrize("words", [("prune",), ("leave", "--keep-data", "--url", "http://127.0.0.1:9")])
def test_where_the_engine_is_away_its_address_and_a_remedy_are_told(own: Path, words: tuple[str]) -> None:
    def said(*words: str) -> Said:
        """In a process of its own, since the engine's library leaves its socket to the garbage collector."""
        environment = {**os.environ, "DOCKER_HOST": f"unix://{own}/nobody.sock", "WORKER_DATA_DIR": str(own)}
        done = subprocess.run(
            [sys.executable, "-m", "gpu_worker", *words, "--json"], env=environment, capture_output=True
        )
        return done.returncode, json.loads(done.stdout), done.stderr.decode()

    code, told, text = said(*words)
    _, doctor, _ = said("doctor")

    assert (code, told["code"]) == (1, "engine_silent")
    assert told["error"] == text.strip().splitlines()[-1]
    check = next(one for one in doctor["checks"] if one["check"] == "engine")
    assert (
        check["detail"]
        == f"the container engine at unix://{own}/nobody.sock does not answer: No such file or directory"
    )
    assert told["error"] == f"T{check['detail'][1:]}. {check['remedy']}"


def test_the_reason_is_what_the_system_calls_it_whatever_else_went_wrong_before() -> None:
    try:
        try:
            raise ValueError("something else")
        except ValueError:
            os.stat("/nowhere/at/all")
    except OSError as problem:
        assert reason_of(problem) == "No such file or directory"


def test_who_holds_the_data_directory_is_said_by_its_name(say: Callable[..., Said], own: Path) -> None:
    words = ("leave", "--url", "http://127.0.0.1:9", "--data-dir", str(own))

    with DataDirLock(own, RUN):
        by_a_worker, running = say(*words)[1]["error"], say("status", "--data-dir", str(own))[1]["running"]
    with DataDirLock(own, LEAVE):
        by_a_leave, leaving = say(*words)[1]["error"], say("status", "--data-dir", str(own))[1]["running"]

    assert by_a_worker == f"The worker is running with the data directory {own}: stop it first."
    assert by_a_leave == f"`leave` is at work on the data directory {own}: wait until it has ended."
    assert (running, leaving) == (True, False)


def test_a_lock_of_a_worker_that_wrote_no_name_is_a_workers(say: Callable[..., Said], own: Path) -> None:
    with DataDirLock(own, LEAVE):
        (own / LOCK_NAME).write_text("")

        assert say("status", "--data-dir", str(own))[1]["running"] is True


@pytest.mark.parametrize(
    ("problem", "code", "exit_code"),
    [
        (Revoked("no"), "revoked", 78),
        (Superseded("no"), "superseded", 78),
        (CredentialInvalid(401, "credential_invalid", "no"), "refused", 1),
        (WireError("no"), "bad_answer", 1),
        (EngineSilent("no"), "engine_silent", 1),
    ],
)
def test_each_failure_has_a_word_that_stays(problem: Any, code: str, exit_code: int) -> None:
    failure = Failure.of(problem)

    assert (failure.code, failure.exit) == (code, exit_code)
