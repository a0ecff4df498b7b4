"""`status`, `doctor` and `verify` tell why the gateway does not serve in the control plane's own words."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable
from typing import Any

import pytest

from gpu_worker.__main__ import main
from tests.gpu_worker.commands_of_owner import Command
from tests.gpu_worker.control_plane import ControlPlane
from tests.gpu_worker.worker import WorkerProcess, eventually

Make = Callable[..., WorkerProcess]
CALLED = "http://10.0.0.5:8787"
WHY = "TCP 8787 of 10.0.0.5 is closed towards the control plane."


@pytest.fixture
def told(plane: ControlPlane, make_worker: Make, command: Command) -> Callable[..., tuple[dict[str, Any], str]]:
    """The status of a worker whose control plane says so, as facts (with the doctor's) and as text."""

    def tell(gateway: str | None, **words: str | None) -> tuple[dict[str, Any], str]:
        plane.gateway, plane.gateway_words = gateway, words
        worker = make_worker().start()
        facts = eventually(lambda: (now := command(worker, "status"))["answers"] and now, what="an answer")
        doctor = {check["check"]: check for check in command(worker, "doctor", code=int(gateway != "ok"))["checks"]}
        return {**facts, "doctor": doctor["gateway"]}, text(worker, "status")

    return tell


def text(worker: WorkerProcess, *words: str) -> str:
    before, said = dict(os.environ), io.StringIO()
    os.environ.update(worker.environment)
    try:
        with contextlib.redirect_stdout(said):
            assert main(words) == 0
    finally:
        os.environ.clear()
        os.environ.update(before)
    return said.getvalue()


def test_the_reason_is_told_to_people_and_to_programs(told: Callable[..., tuple[dict[str, Any], str]]) -> None:
    facts, said = told("refused", gateway_url=CALLED, gateway_detail=WHY)

    assert (facts["gateway"], facts["gateway_address"], facts["gateway_because"]) == ("refused", CALLED, WHY)
    assert f"Gateway: {CALLED}: {WHY}" in said.splitlines()
    assert (facts["doctor"]["ok"], facts["doctor"]["detail"]) == (False, WHY)


def test_an_address_that_is_not_the_one_proposed_is_not_said_to_be_reached(
    told: Callable[..., tuple[dict[str, Any], str]],
) -> None:
    _, said = told("ok", gateway_url=CALLED, gateway_detail=None)

    [line] = [line for line in said.splitlines() if line.startswith("Gateway: ")]
    assert line.startswith(f"Gateway: {CALLED}: the control plane reaches it. It does not call http://127.0.0.1:")


def test_an_older_control_plane_says_no_more_than_its_word(told: Callable[..., tuple[dict[str, Any], str]]) -> None:
    facts, said = told("timeout")

    assert (facts["gateway"], facts["gateway_because"]) == ("timeout", None)
    assert "the control plane gets no answer there" in said
