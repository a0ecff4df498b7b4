"""kill -9 of the worker at each point of a container's life, and at moments that nobody chose; see kills.py."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gpu_worker.kills import LONGEST_LIFE_SECONDS, POINTS, Rounds

pytestmark = pytest.mark.docker

RANDOM_KILLS = 10


@pytest.fixture
def rounds(tmp_path: Path) -> Iterator[Rounds]:
    with Rounds(tmp_path) as rounds:
        yield rounds


def test_whatever_the_worker_was_doing_the_job_runs_once_after_its_next_start(rounds: Rounds) -> None:
    for point in POINTS:
        rounds.at(point)
    rounds.while_running()


def test_a_worker_that_dies_at_any_moment_leaves_nothing_twice_and_nothing_behind(rounds: Rounds) -> None:
    chance = random.Random("ten moments, the same each time")
    for _ in range(RANDOM_KILLS // 2):
        # the second meets a worker that is picking up what the first has left
        rounds.after(chance.uniform(0, LONGEST_LIFE_SECONDS), chance.uniform(0, LONGEST_LIFE_SECONDS))
