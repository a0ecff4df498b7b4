"""Whatever happens in whatever order, what was promised holds, and the world comes to rest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[2]
SECONDS = 1500  # a guard against hanging
SEED = 20261129  # the same schedules in every run; `make chaos` draws others
SCHEDULES, OVER_HTTP = 2000, 150


def chaos(*options: str) -> tuple[int, str, dict[str, Any]]:
    """A run of its own process: exit status, all that it said, and its counts."""
    command = [sys.executable, "-m", "tests.chaos", *options]
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    done = subprocess.run(
        command, cwd=PROJECT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    lines = done.stdout.splitlines()
    try:
        counts: dict[str, Any] = json.loads(lines[-1])
    except (IndexError, ValueError):
        counts = {}
    return done.returncode, done.stdout, counts


@pytest.mark.timeout(SECONDS)
def test_schedules_of_faults_break_no_promise() -> None:
    status, said, counts = chaos("--schedules", str(SCHEDULES), "--seed", str(SEED))
    print(counts)

    assert status == 0, said
    assert counts["schedules"] >= SCHEDULES


@pytest.mark.timeout(SECONDS)
def test_schedules_over_http_break_none_either() -> None:
    status, said, counts = chaos("--schedules", str(OVER_HTTP), "--seed", str(SEED), "--http")
    print(counts)

    assert status == 0, said
    assert counts["schedules"] >= OVER_HTTP


@pytest.mark.timeout(SECONDS)
def test_a_planted_defect_is_found_and_its_seed_makes_it_again() -> None:
    plant = ("--plant", "a_stop_waits_for_a_worker_that_is_gone")
    options = (*plant, "--seed", "2", "--schedules", "50", "--no-shrink", "--processes", "1")

    first, second = chaos(*options), chaos(*options)

    assert (first[0], second[0]) == (1, 1), first[1]
    assert "make it again: make chaos SEED=" in first[1]
    assert failing_schedule(first[1]) == failing_schedule(second[1]) != []


def failing_schedule(said: str) -> list[str]:
    """The steps that showed the failure."""
    lines = said.splitlines()
    return [line for line in lines if line.startswith("state.")]
