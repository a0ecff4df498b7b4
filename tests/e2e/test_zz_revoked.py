"""A revoked worker stops its apps, wipes its credential and never comes back. Last, because it ends a worker."""

from __future__ import annotations

from tests.e2e.world import Portal, World, eventually


def test_a_revoked_worker_stops_for_good_with_status_78(world: World, owner: Portal) -> None:
    gpu_space = world.space("on-revoked", topics="space,gpu")
    owner.act(gpu_space, "start")
    world.wait_for_state(gpu_space, "running")

    world.manage("revoke", "gpu1")

    eventually(lambda: world.stack.supervisor.given_up("gpu1") == 78, "the worker ended with 78")
    world.wait_for_state(gpu_space, "unavailable", "failed", "completed")
    directory = world.machines["gpu1"].directory(world.installation)
    assert not (directory / "credential.json").exists()
