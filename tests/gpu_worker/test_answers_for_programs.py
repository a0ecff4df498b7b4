"""Who asks for JSON gets one object, also when the command fails; the sentence for people stays on stderr."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpu_worker.__main__ import main
from gpu_worker.answer import Failure
from gpu_worker.errors import CredentialInvalid, EngineSilent, Revoked, Superseded, WireError
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
