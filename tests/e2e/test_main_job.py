"""A Space from repository to browser: start, look, talk, stop, and nothing left."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import requests

from tests.e2e.world import Portal, World, eventually

SAMPLES = Path(__file__).resolve().parents[2] / "fixtures" / "spaces"


def test_a_cpu_space_runs_and_stops_and_leaves_nothing(world: World, owner: Portal) -> None:
    space = world.space("hello")

    owner.act(space, "start")
    world.wait_for_state(space, "running")
    page = owner.get(f"/run/{space}/")
    assert page.status_code == 200
    assert page.text.startswith("hello from pid")
    assert page.url.startswith(world.data), "/run is served from the runtime origin"

    owner.act(space, "stop")
    world.wait_for_state(space, "completed")
    eventually(lambda: world.apps_of("cpu1") == set(), "no process is left")
    assert owner.get(f"/run/{space}/").status_code == 503


def test_the_exact_commit_runs_though_the_branch_moved_on(world: World, owner: Portal) -> None:
    space = world.space("pinned", boot=1)
    owner.act(space, "start")
    (pinned,) = world.rows("SELECT revision FROM jobs_job WHERE repo = 'pinned'")[0]
    world.space("pinned", boot=0)  # a newer commit while it is on its way

    world.wait_for_state(space, "running")

    status = owner.status(space)
    assert status["revision"] == pinned
    owner.act(space, "stop")
    world.wait_for_state(space, "completed")


def test_a_gpu_space_gets_a_whole_gpu_and_says_that_it_is_simulated(world: World, owner: Portal) -> None:
    space = world.space("on-gpu", topics="space,gpu")

    owner.act(space, "start")
    world.wait_for_state(space, "running")

    rows = world.rows(
        """SELECT w.name, g.simulated FROM jobs_reservation r JOIN workers_gpu g ON g.id = r.gpu_id
           JOIN workers_worker w ON w.id = g.worker_id JOIN jobs_lease l ON l.id = r.lease_id
           JOIN jobs_job j ON j.id = l.job_id WHERE j.repo = 'on-gpu' AND r.cleared_at IS NULL"""
    )
    assert rows == [("gpu1", True)]
    owner.act(space, "stop")
    world.wait_for_state(space, "completed")
    cleared = "SELECT count(*) FROM jobs_reservation WHERE cleared_at IS NULL"
    eventually(lambda: world.rows(cleared) == [(0,)], "the reservation ends when the worker has nothing left")


def test_the_log_says_what_ran_where(world: World, owner: Portal) -> None:
    space = world.space("talks")
    owner.act(space, "start")
    world.wait_for_state(space, "running")

    def logged() -> str:
        return "".join(
            text
            for (text,) in world.rows(
                """SELECT c.text FROM jobs_logchunk c JOIN jobs_lease l ON l.id = c.lease_id
               JOIN jobs_job j ON j.id = l.job_id WHERE j.repo = 'talks' ORDER BY c.stream, c."offset" """
            )
        )

    eventually(lambda: "listening" in logged(), "the app's output arrives")
    (revision,) = world.rows("SELECT revision FROM jobs_job WHERE repo = 'talks'")[0]
    assert f"revision {revision} · worker cpu1 · lease" in logged()
    assert "listening" in owner.get(f"/spaces/{space}/logs/?stream=run").text
    owner.act(space, "stop")
    world.wait_for_state(space, "completed")


def test_a_websocket_talks_both_ways(world: World, owner: Portal) -> None:
    world.manage(
        "import_space", str(SAMPLES / "web-echo"), "owner/web-echo", "--topics", "space,cpu", "--visibility", "public"
    )
    space = "owner/web-echo"
    owner.act(space, "start")
    world.wait_for_state(space, "running")

    async def talk() -> str:
        async with aiohttp.ClientSession() as session, session.ws_connect(f"{world.data}/run/{space}/ws") as socket:
            await socket.send_str("こんにちは")
            return str(await asyncio.wait_for(socket.receive_str(), 20))

    assert "こんにちは" in asyncio.run(talk())
    owner.act(space, "stop")
    world.wait_for_state(space, "completed")


def test_stop_pressed_while_it_starts_wins(world: World, owner: Portal) -> None:
    space = world.space("slow-boot", boot=30)
    owner.act(space, "start")
    world.wait_for_state(space, "starting")

    owner.act(space, "stop")

    assert world.wait_for_state(space, "cancelled", "completed", "running") == "cancelled"
    eventually(lambda: world.apps_of("cpu1") == set(), "no process is left")


def test_start_right_after_stop_works(world: World, owner: Portal) -> None:
    space = world.space("again", stop=1)
    owner.act(space, "start")
    world.wait_for_state(space, "running")
    first = owner.get(f"/run/{space}/").text

    owner.act(space, "stop")
    owner.act(space, "start")
    world.wait_for_state(space, "running")

    assert owner.get(f"/run/{space}/").text != first
    assert len(world.apps_of("cpu1")) == 1
    owner.act(space, "stop")
    world.wait_for_state(space, "completed")


def test_a_restart_ends_in_one_running_app(world: World, owner: Portal) -> None:
    space = world.space("restarts")
    owner.act(space, "start")
    world.wait_for_state(space, "running")
    (first,) = world.apps_of("cpu1")

    owner.act(space, "restart")
    eventually(lambda: world.state(space) == "running" and world.apps_of("cpu1") not in ({first}, set()), "a new app")

    assert len(world.apps_of("cpu1")) == 1
    states = [state for (state,) in world.rows("SELECT state FROM jobs_job WHERE repo = 'restarts' ORDER BY seq")]
    assert states == ["completed", "running"]
    owner.act(space, "stop")
    world.wait_for_state(space, "completed")


def test_the_portal_and_the_data_plane_are_two_origins(world: World) -> None:
    answer = requests.get(f"{world.web}/run/owner/hello/x?y=1", allow_redirects=False, timeout=10)
    assert answer.status_code == 307
    assert answer.headers["Location"] == f"{world.data}/run/owner/hello/x?y=1"
