"""kill -9 of any program with jobs in every phase: no lost job, no second app, and states that are true again."""

from __future__ import annotations

import pytest

from tests.e2e.world import PATIENCE_SECONDS, Portal, World, eventually

PROGRAMS = {"worker": "cpu1", "web": "web", "data": "data", "keeper": "keeper"}


def strike(world: World, victim: str) -> None:
    """kill -9 of one program, or of all of them and the database at once."""
    for name, program in PROGRAMS.items():
        if victim in (name, "everything"):
            world.kill(program)
    if victim in ("postgres", "everything"):
        world.kill_postgres()


def spaces_in_every_phase(world: World, owner: Portal) -> dict[str, str]:
    """One Space running, one stopping, one starting, and one as early on its way as we can catch it."""
    running = world.space("k-running")
    stopping = world.space("k-stopping", stop=3)
    starting = world.space("k-starting", boot=4)
    early = world.space("k-early")
    for space in (running, stopping):
        owner.act(space, "start")
    for space in (running, stopping):
        world.wait_for_state(space, "running")
    owner.act(starting, "start")
    world.wait_for_state(starting, "starting")
    owner.act(stopping, "stop")
    owner.act(early, "start")
    world.wait_for_state(early, "leased", "building", "starting", "running")
    return {"running": running, "stopping": stopping, "starting": starting, "early": early}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("victim", [*PROGRAMS, "postgres", "everything"])
def test_states_are_true_again_and_nothing_runs_twice(world: World, owner: Portal, victim: str) -> None:
    spaces = spaces_in_every_phase(world, owner)
    survivor = owner.get(f"/run/{spaces['running']}/").text

    strike(world, victim)

    for phase in ("running", "starting", "early"):
        world.wait_for_state(spaces[phase], "running", seconds=2 * PATIENCE_SECONDS)
    world.wait_for_state(spaces["stopping"], "completed", seconds=2 * PATIENCE_SECONDS)
    eventually(lambda: len(world.apps_of("cpu1")) == 3, "one app for each running Space and none besides")
    eventually(
        lambda: owner.get(f"/run/{spaces['running']}/").text == survivor,
        "the running app never stopped",
        otherwise=world.log_tail,
    )
    unreleased = """SELECT count(*) FROM jobs_lease l JOIN jobs_job j ON j.id = l.job_id
                    WHERE l.released_at IS NULL AND j.repo LIKE 'k-%%'"""
    assert world.rows(unreleased) == [(3,)]
    for phase in ("running", "starting", "early"):
        owner.act(spaces[phase], "stop")
    for phase in ("running", "starting", "early"):
        world.wait_for_state(spaces[phase], "completed")
    eventually(lambda: world.apps_of("cpu1") == set(), "no process is left")
    eventually(
        lambda: world.rows("SELECT count(*) FROM jobs_lease WHERE cleared_at IS NULL") == [(0,)],
        "the worker has said that nothing of any lease is left",
    )


@pytest.mark.timeout(300)
def test_a_worker_that_stays_away_is_shown_as_unavailable_and_comes_back_with_the_same_app(
    world: World, owner: Portal
) -> None:
    space = world.space("k-away")
    owner.act(space, "start")
    world.wait_for_state(space, "running")
    before = owner.get(f"/run/{space}/").text

    world.stack.supervisor.kill("cpu1")
    world.wait_for_state(space, "unavailable")
    page = owner.get(f"/run/{space}/", headers={"Accept": "text/html"})
    assert (page.status_code, "cpu1" in page.text) == (503, True)

    world.stack.supervisor.resume("cpu1")
    world.wait_for_state(space, "running")
    eventually(lambda: owner.get(f"/run/{space}/").text == before, "the same app answers")
    owner.act(space, "stop")
    world.wait_for_state(space, "completed")


@pytest.mark.timeout(300)
def test_a_stop_while_the_worker_is_away_is_final_at_once_and_enforced_on_its_return(
    world: World, owner: Portal
) -> None:
    space = world.space("k-stopped-away")
    owner.act(space, "start")
    world.wait_for_state(space, "running")
    world.stack.supervisor.kill("cpu1")
    world.wait_for_state(space, "unavailable")

    owner.act(space, "stop")
    assert world.state(space) == "completed"
    assert len(world.apps_of("cpu1")) == 1

    world.stack.supervisor.resume("cpu1")
    eventually(lambda: world.apps_of("cpu1") == set(), "the worker removes it when it hears")
