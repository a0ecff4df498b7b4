"""Machines that vanish and return, and a control plane that does: real workers, a real server, and a bad line between.

East's clock is 20 minutes late and west's 20 minutes early, in every test here: nothing may depend on a worker's clock.
Intervals are scaled (a heartbeat each 0.5 s, silent after 4 s, a lease of 5 s), so waiting here is waiting for those.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import requests

from openface.demo.machines import SIMULATED_GPUS
from tests.e2e.absent_machines import HELLO, OTHER, README, WANDERER, Backup, Fleet, Visitor, alive
from tests.e2e.relay import Relay
from tests.e2e.world import Oddities, Portal, World, eventually
from tests.gpu_worker.slow_builds import waits_for
from tests.gpu_worker.worker import free_port

pytestmark = pytest.mark.timeout(300, func_only=True)

CLOCKS = {"east": -1200.0, "west": 1200.0}
HELD_SECONDS = 8


@pytest.fixture(scope="module")
def fleet(world: World, owner: Portal) -> Iterator[Fleet]:
    fleet = Fleet(world, owner, world.portal("operator"), {})
    for number, (name, off) in enumerate(CLOCKS.items(), start=1):
        line = fleet.lines[name] = Relay(world.installation.web_port)
        gpus = json.loads(json.dumps(SIMULATED_GPUS))
        for gpu in gpus["gpus"]:
            gpu["uuid"] = gpu["uuid"].replace("51a00000", f"51a0000{number}")
        file = world.installation.state_dir / "workers" / f"{name}-gpus.json"
        file.write_text(json.dumps(gpus), encoding="utf-8")
        environment = {
            "OPENFACE_URL": line.url,
            "OPENFACE_SIMULATE_GPUS": str(file),
            "UNKNOWN_LEASE_SECONDS": str(HELD_SECONDS),
        }
        odd = Oddities(environment=environment, clock_off_seconds=off)
        world.machine(name, local=False, gpus=2, cpus=0, odd=odd)
    world.stand("gpu1", "drain")
    world.space("wanderer", {"README.md": README.format(name="wanderer"), "app.py": HELLO}, topics="space,gpu")
    yield fleet
    world.stand("gpu1", "resume")
    for name, line in fleet.lines.items():
        line.heal()
        world.stack.supervisor.stop(name)
        world.stand(name, "revoke")  # idempotent
        line.close()


@pytest.fixture(autouse=True)
def whole_again(fleet: Fleet) -> Iterator[None]:
    """A test that fails must not take the next ones along."""
    fleet.began = fleet.world.rows("SELECT coalesce(max(seq), 0) FROM jobs_job")[0][0]
    yield
    for name, line in fleet.lines.items():
        line.heal()
        line.lose_answers("", times=0)
        draining = "SELECT 1 FROM workers_worker WHERE name = %s AND scheduling = 'draining' AND revoked_at IS NULL"
        if fleet.world.rows(draining, name):
            fleet.world.stand(name, "resume")
    active = "SELECT count(*) FROM jobs_job WHERE state NOT IN ('completed', 'failed', 'cancelled')"
    if fleet.world.rows(active) != [(0,)]:
        fleet.world.manage("space", "stop", "--all", "--wait", "20")


# --- the machine is cut off -----------------------------------------------------------------------------------------


def test_clocks_are_wrong_here(fleet: Fleet) -> None:
    log = (fleet.world.directory / "log").read_text(errors="replace")

    for name, off in CLOCKS.items():
        told = re.search(rf"^{name} +\| (\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d)", log, re.MULTILINE)
        assert told
        said = datetime.fromisoformat(told.group(1))
        assert abs(said - datetime.now() - timedelta(seconds=off)) < timedelta(minutes=10)


def test_a_cut_off_space_started_elsewhere_is_never_served_twice_and_the_old_one_goes_on_return(fleet: Fleet) -> None:
    space, home, first = fleet.run()
    old = fleet.leases(space)[0][0]
    with Visitor(fleet, space) as visitor:
        fleet.lines[home].freeze()
        fleet.world.wait_for_state(space, "unavailable")
        fleet.owner.act(space, "restart")
        eventually(lambda: fleet.home(space) == OTHER[home], "the other worker takes the new job")
        fleet.world.wait_for_state(space, "running")
        second = fleet.hello(space)
        assert len(fleet.world.apps_of(home)) == 1, "the cut-off one goes on; nobody can tell it"
        assert (fleet.reserved(old), fleet.leases(space)[0][2:4]) == (1, (True, False))

        fleet.lines[home].heal()
        eventually(lambda: fleet.reserved(old) == 0, "the reservation ends")
        assert fleet.world.apps_of(home) == set(), "only after nothing of it was left"
        assert fleet.hello(space) == second

    assert [text for text in visitor.saw if text in (first, second)] == visitor.saw
    assert visitor.saw.index(second) == len(visitor.saw) - 1, "after the new one the old one is never seen again"
    fleet.stop(space)


def test_a_stop_of_a_cut_off_space_is_final_at_once_however_often_it_is_pressed(fleet: Fleet) -> None:
    space, home, _ = fleet.run()
    fleet.lines[home].cut()
    fleet.world.wait_for_state(space, "unavailable")
    seen = "SELECT last_seen_at FROM workers_worker WHERE name = %s"
    before = fleet.world.rows(seen, home)

    fleet.owner.act(space, "stop")
    assert fleet.world.state(space) == "completed"
    fleet.owner.act(space, "stop")

    assert fleet.world.rows(seen, home) == before, "pressing a button is no sign of life"
    assert fleet.events(space).count("stop_unreachable") == 1
    fleet.lines[home].heal()
    eventually(lambda: fleet.world.apps_of(home) == set(), "it is stopped on its return")
    eventually(lambda: fleet.uncleared() == 0, "and said so")


def test_a_bad_line_moves_nothing_elsewhere(fleet: Fleet) -> None:
    space, home, first = fleet.run()
    with fleet.lines[home].poor(delay_seconds=0.4, drop=0.2):
        since = fleet.world.rows("SELECT now()")[0][0]
        lived = "SELECT now() - %s > interval '8 seconds'"
        eventually(lambda: fleet.world.rows(lived, since)[0][0], "a while")
        assert len(fleet.world.apps_of(home)) == 1

    fleet.world.wait_for_state(space, "running")
    assert fleet.hello(space) == first
    assert len(fleet.leases(space)) == 1
    fleet.stop(space)


def test_a_worker_that_was_frozen_takes_new_jobs_after_it(fleet: Fleet) -> None:
    with fleet.only("east"):
        fleet.lines["east"].freeze()
        space = fleet.start("after-ice")
        waits = "SELECT now() - last_seen_at > interval '4 seconds' FROM workers_worker WHERE name = 'east'"
        eventually(lambda: fleet.world.rows(waits)[0][0], "east is silent")
        assert fleet.world.state(space) == "queued"

        fleet.lines["east"].heal()

        fleet.world.wait_for_state(space, "running")
        fleet.stop(space)


# --- builds ---------------------------------------------------------------------------------------------------------


def test_a_build_that_outlives_its_lease_goes_on_when_nobody_took_the_job(fleet: Fleet, tmp_path: Path) -> None:
    with fleet.only("east"):
        space = fleet.start("long-build", **waits_for(tmp_path / "gate"))
        fleet.wait_for_build(space)
        fleet.lines["east"].cut()
        fleet.world.wait_for_state(space, "queued")

        (tmp_path / "gate").touch()
        fleet.lines["east"].heal()

        fleet.world.wait_for_state(space, "running")
        [(_, home, _, _, attempts)] = fleet.leases(space)
        assert (home, attempts) == ("east", 1)
        fleet.stop(space)


def test_a_build_that_outlives_its_lease_starts_nothing_when_somebody_took_the_job(
    fleet: Fleet, tmp_path: Path
) -> None:
    space = fleet.start("late-build", **waits_for(tmp_path / "gate"))
    fleet.wait_for_build(space)
    old, home, *_ = fleet.leases(space)[0]
    fleet.lines[home].freeze()
    eventually(lambda: len(fleet.leases(space)) == 2, "the other worker takes it")

    (tmp_path / "gate").touch()
    fleet.world.wait_for_state(space, "running")
    over = lambda: fleet.journal(home, old).get("child", True) is None  # noqa: E731
    eventually(over, "the late build has ended")
    assert fleet.world.apps_of(home) == set()
    served = fleet.hello(space)
    fleet.lines[home].heal()

    eventually(lambda: fleet.leases(space)[0][3], "the late builder has let go")
    assert fleet.world.apps_of(home) == set()
    assert fleet.world.rows("SELECT count(*) FROM jobs_jobevent WHERE lease_id = %s AND event = 'starting'", old) == [
        (0,)
    ]
    assert fleet.hello(space) == served
    fleet.stop(space)


def test_a_batch_job_that_ends_while_its_machine_is_cut_off_is_complete_with_its_whole_log(
    fleet: Fleet, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    work = f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.05)\n"
    app = work + "for n in range(300): print('line', n, flush=True)\n"
    space = fleet.start("sum", topics="benchmark,gpu", **{"app.py": app})
    fleet.world.wait_for_state(space, "running")
    lease, home, *_ = fleet.leases(space)[0]

    fleet.lines[home].freeze()
    go.touch()
    eventually(lambda: fleet.journal(home, lease).get("phase") == "exited", "it has ended")
    fleet.lines[home].heal()

    fleet.world.wait_for_state(space, "completed")
    assert fleet.world.rows("SELECT exit_code FROM jobs_job WHERE repo = 'sum'") == [(0,)]
    assert fleet.log_of(space, "run").splitlines() == [f"line {n}" for n in range(300)]
    eventually(lambda: fleet.uncleared() == 0, "nothing is left")


# --- lost answers ---------------------------------------------------------------------------------------------------


def test_lost_claim_answers_start_nothing_twice_and_count_no_attempt(fleet: Fleet) -> None:
    for line in fleet.lines.values():
        line.lose_answers("/jobs/claim", times=1_000)
    space = fleet.start("lost-claim")
    eventually(lambda: bool(fleet.leases(space)), "it is claimed, and nobody hears")
    for line in fleet.lines.values():
        line.lose_answers("/jobs/claim", times=0)

    fleet.world.wait_for_state(space, "running")

    assert fleet.leases(space)[-1][4] == 1
    events = fleet.events(space)
    assert events.count("claim") == events.count("lost") + 1, "the same lease, or each lost one given back uncounted"
    eventually(lambda: sum(len(fleet.world.apps_of(name)) for name in fleet.lines) == 1, "one app")
    fleet.stop(space)


def test_a_restart_after_a_lost_claim_answer_gives_the_job_back_at_once_uncounted(fleet: Fleet) -> None:
    with fleet.only("east"):
        fleet.lines["east"].lose_answers("/jobs/claim", times=1_000)
        space = fleet.start("lost-restart")
        eventually(lambda: bool(fleet.leases(space)), "it is claimed, and nobody hears")
        fleet.world.stack.supervisor.kill("east")
        fleet.lines["east"].lose_answers("/jobs/claim", times=0)

        fleet.world.stack.supervisor.resume("east")

        fleet.world.wait_for_state(space, "running")
        assert fleet.leases(space)[-1][4] == 1
        assert "expired" not in fleet.events(space)
        assert fleet.events(space).count("lost") >= 1
        fleet.stop(space)


# --- the control plane is away --------------------------------------------------------------------------------------


def test_a_server_that_was_away_for_long_finds_everything_as_it_was_even_with_other_keys(
    fleet: Fleet, tmp_path: Path
) -> None:
    world = fleet.world
    space, _, first = fleet.run()
    slow = fleet.start("build-away", **waits_for(tmp_path / "gate"))
    fleet.wait_for_build(slow)
    for program in ("web", "data"):
        world.stack.supervisor.kill(program)

    (tmp_path / "gate").touch()
    away = "SELECT now() - alive_at > interval '6 seconds' FROM jobs_uptime"  # longer than stale, and than a lease
    eventually(lambda: world.rows(away)[0][0], "a long outage")
    assert (world.state(space), world.state(slow)) == ("running", "building"), "nobody is blamed for our own outage"
    world.installation.overrides["OPENFACE_LEASE_KEYS"] = "k2:" + "5a" * 32  # the old key is gone as well
    for server in (world.stack._web(), world.stack._data()):
        world.stack.supervisor.start(server)

    eventually(lambda: fleet.visit(space) == first, "it is served again, with a token of the new key")
    world.wait_for_state(slow, "running")
    assert fleet.hello(slow).startswith("hello")
    for one in (space, slow):
        assert fleet.events(one) == ["submitted", "claim", "building", "starting", "running"]
        assert len(fleet.leases(one)) == 1
    used = "SELECT DISTINCT key_id FROM jobs_lease WHERE released_at IS NULL"
    assert world.rows(used) == [("k2",)]
    fleet.owner.act(slow, "stop")
    fleet.stop(space)


def test_after_an_older_database_was_restored_what_nobody_knows_is_held_shown_and_removed_in_the_end(
    fleet: Fleet,
) -> None:
    world = fleet.world
    with fleet.only("east"):
        space = WANDERER
        backup = Backup(world.database_url)
        backup.make()
        fleet.owner.act(space, "start")
        world.wait_for_state(space, "running")
        first = fleet.hello(space)
        [app] = world.apps_of("east")
        world.kill("east")  # its session is ahead of the copy's from now on
        newer = "SELECT session FROM workers_worker WHERE name = 'east'"
        was = world.rows(newer)[0][0]
        eventually(lambda: world.rows(newer)[0][0] > was, "east registers again")

        backup.restore()

        held = "SELECT jsonb_array_length(foreign_leases) FROM workers_worker WHERE name = 'east'"
        eventually(lambda: world.rows(held) == [(1,)], "it is held")
        assert world.apps_of("east") == {app}, "kept running"
        assert world.stack.supervisor.given_up("east") is None
        assert fleet.visit(space) is None, "not served"
        assert "on hold" in fleet.operator.get("/fleet/").text
        fleet.owner.act(space, "start")
        world.wait_for_state(space, "running")
        second = fleet.hello(space)
        assert second != first
        eventually(lambda: app not in world.apps_of("east"), "removed when its time is over")
        assert fleet.hello(space) == second
        eventually(lambda: world.rows(held) == [(0,)], "nothing is on hold any more")
        fleet.stop(space)


# --- who is this worker ---------------------------------------------------------------------------------------------


def test_of_two_processes_with_one_credential_the_older_leaves_and_stops_nothing(fleet: Fleet) -> None:
    world = fleet.world
    space, home, first = fleet.run()
    [app] = world.apps_of(home)
    copy = fleet.directory(home).with_name("twin")
    shutil.copytree(fleet.directory(home), copy, symlinks=True)
    program = world.program(world.machines[home])
    environment = {**program.environment, "WORKER_DATA_DIR": str(copy), "GPU_WORKER_PORT": str(free_port())}
    world.stack.supervisor.start(replace(program, name="twin", environment=environment))

    eventually(lambda: world.stack.supervisor.given_up(home) == 78, "the older one leaves")

    assert world.apps_of(home) == {app}
    world.stack.supervisor.kill("twin")
    world.stack.supervisor.resume(home)
    eventually(lambda: fleet.visit(space) == first, "the same app is served by the one that is left")
    assert [(worker, released) for _, worker, released, *_ in fleet.leases(space)] == [(home, False)]
    fleet.stop(space)
    shutil.rmtree(copy)


def test_a_credential_is_changed_under_running_spaces(fleet: Fleet) -> None:
    world = fleet.world
    space, home, first = fleet.run()
    [app] = world.apps_of(home)
    identity = world.worker_id(home)
    token = world.manage("issue_enrollment_token", home, "--replace").strip()
    credential = fleet.directory(home) / "credential.json"
    former = json.loads(credential.read_text())["credential"]

    world.stack.supervisor.kill(home)
    credential.unlink()
    world.machines[home].token_file(world.installation).write_text(token, encoding="utf-8")
    world.stack.supervisor.resume(home)

    eventually(lambda: fleet.visit(space) == first, "the same app answers")
    assert (world.worker_id(home), world.apps_of(home)) == (identity, {app})
    assert [(worker, released) for _, worker, released, *_ in fleet.leases(space)] == [(home, False)]
    refused = requests.post(
        f"{world.web}/api/v1/workers/{identity}/heartbeat",
        json={"session": 1, "beat": 1, "accepting": True, "gpus": [], "holds": []},
        headers={"Authorization": f"Bearer {former}"},
        timeout=10,
    )
    assert (refused.status_code, refused.json()["code"]) == (401, "credential_invalid")
    fleet.stop(space)


def test_revoked_workers_stop_what_they_have_when_they_hear_even_if_that_is_later(fleet: Fleet, tmp_path: Path) -> None:
    """The last one: it ends both machines."""
    world = fleet.world
    running, here, _ = fleet.run()
    away = OTHER[here]
    world.stand(here, "drain")
    distant = fleet.start("revoked-away")
    world.wait_for_state(distant, "running")
    assert fleet.home(distant) == away
    building = fleet.start("revoked-building", **waits_for(tmp_path / "never"))
    world.wait_for_state(building, "building")
    fleet.lines[away].freeze()
    near, far = world.apps_of(here), world.apps_of(away)

    for name in (here, away):
        world.stand(name, "revoke")

    for space in (running, distant):
        assert world.state(space) == "unavailable"
    assert (world.state(building), fleet.leases(building)[-1][4]) == ("queued", 0)
    assert fleet.uncleared() == 0
    eventually(lambda: world.stack.supervisor.given_up(here) == 78, "it ends with 78")
    assert not alive(near)
    assert alive(far), "it has not heard yet"
    fleet.owner.act(running, "stop")
    assert world.state(running) == "completed", "nobody waits for a worker that is gone for good"

    fleet.lines[away].heal()

    eventually(lambda: world.stack.supervisor.given_up(away) == 78, "it ends with 78 as well")
    assert not alive(far)
    for name in (here, away):
        assert not (fleet.directory(name) / "credential.json").exists()
    for space in (distant, building):
        fleet.owner.act(space, "stop")
