"""People, operators, machines and keepers act at the same moment, each on a connection of its own, and none waits for
another in a circle.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from jobs import rescue
from tests.chaos import rest, truths
from tests.chaos.child import deadlocks
from tests.chaos.fleet import MACHINES, SPACES, found_fleet
from tests.chaos.simulated_worker import SimulatedWorker
from tests.chaos.wire import DirectWire
from tests.chaos.world import World, open_world

pytestmark = pytest.mark.django_db(transaction=True)

ACTS = 12  # of each, all at once
ROUNDS = 3


def people(world: World, chance: random.Random) -> None:
    for _ in range(ACTS):
        space = chance.randrange(len(SPACES))
        acts: list[Callable[[int], object]] = [world.start, world.start, world.start_again, world.stop]
        chance.choice(acts)(space)


def operators(world: World, chance: random.Random) -> None:
    for _ in range(ACTS):
        world.stand(chance.randrange(len(MACHINES)), chance.choice(["drain", "resume", "disable", "enable"]))


def machine(worker: SimulatedWorker, chance: random.Random) -> None:
    for _ in range(ACTS):
        if not worker.registered:
            worker.start()
            worker.register()
        worker.claim()
        for task in worker.tasks():
            worker.work(task, chance.choice(["go", "go", "fail"]))
        worker.beat()


def keeper() -> None:
    for _ in range(ACTS):
        rescue.sweep()


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_no_two_acts_wait_for_each_other_in_a_circle(seed: int, at_once: Callable[..., list[Any]]) -> None:
    world = open_world(found_fleet(), DirectWire)
    before, chances = deadlocks(), [random.Random(f"{seed} {number}") for number in range(8)]

    results = at_once(
        [
            lambda: people(world, chances[0]),
            lambda: people(world, chances[1]),
            lambda: operators(world, chances[2]),
            keeper,
            keeper,
            *(
                lambda worker=worker, chance=chance: machine(worker, chance)
                for worker, chance in zip(world.workers, chances[3:], strict=False)
            ),
        ]
    )

    assert [result for result in results if result is not None] == []
    assert deadlocks() == before
    truths.check(truths.look(), world.history)
    for number in range(len(MACHINES)):
        world.stand(number, "resume")
        world.stand(number, "enable")
    picture = rest.settle(world)
    rest.check_at_rest(world, picture)
    rest.check_empty(world, picture)
