"""Where schedules begin: an idle fleet, or one at work. Prepared once for a batch, so that no schedule pays for it."""

from __future__ import annotations

from collections.abc import Callable

from tests.chaos.fleet import SPACES, Fleet
from tests.chaos.wire import Wire
from tests.chaos.world import World, open_world

NUMBER = {kind.name: number for number, kind in enumerate(SPACES)}
# Which Spaces have been started when the schedule begins, in that order, and how far each is.
STAGES: tuple[tuple[tuple[str, str], ...], ...] = (
    (),
    (("plain", "running"), ("whole", "running"), ("count", "building")),
    (("shared", "running"), ("measure", "starting"), ("plain", "leased")),
    (("pair", "starting"), ("plain", "running")),
    (("whole", "building"), ("large", "running"), ("count", "running")),
)


def set_stage(fleet: Fleet, wire: Callable[[str], Wire], number: int, kind: type[World] = World) -> World:
    """Open the world and bring the stage's Spaces as far as they are in it."""
    world = open_world(fleet, wire, kind)
    for name, phase in STAGES[number % len(STAGES)]:
        world.start(NUMBER[name])
        world.watch()
        for worker in reversed(world.workers):
            claimed = world.claim(worker)
            if claimed is not None:
                task = worker.journal[claimed.lease]
                while task.phase != phase:
                    worker.work(task)
                break
    for worker in world.workers:
        worker.beat()
    world.watch()
    return world
