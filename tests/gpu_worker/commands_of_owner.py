"""Run the worker's commands as the owner of its machine would, in this process."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest

from gpu_worker.__main__ import main
from tests.gpu_worker.worker import WorkerProcess

Command = Callable[..., dict[str, Any]]


def make_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """A function that runs a command with a worker's settings; its JSON answer ({} where it has none)."""

    def run(worker: WorkerProcess, *words: str, code: int = 0) -> dict[str, Any]:
        with monkeypatch.context() as changed:
            for name in list(os.environ):
                changed.delenv(name)
            for name, value in worker.environment.items():
                changed.setenv(name, value)
            capsys.readouterr()
            ended = main([*words, "--json"])
        said = capsys.readouterr()
        assert ended == code, said.err
        return dict(json.loads(said.out)) if said.out else {}

    return run
