"""A machine that is restarted, and one that is installed anew, with a Space in a container: the same one goes on."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from openface.demo.engine import Engine
from tests.e2e.world import Oddities, Portal, World, eventually
from tests.gpu_worker.images import BUSYBOX, DOCKERFILE

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300, func_only=True)]

HELLO = "hello from a container"


@pytest.fixture(scope="module")
def boxed(world: World, owner: Portal) -> Iterator[str]:
    """A Space that runs in a container of the machine `box`; its full name."""
    world.stand("cpu1", "drain")
    world.machine("box", odd=Oddities(engine=Engine("docker", "", "")))
    readme = "---\ntitle: boxed\nsdk: docker\n---\n"
    files: dict[str, str | bytes] = {
        "README.md": readme,
        "Dockerfile": DOCKERFILE,
        "index.html": HELLO,
        "busybox": BUSYBOX.read_bytes(),
    }
    space = world.space("boxed", files)
    owner.act(space, "start")
    world.wait_for_state(space, "running")
    yield space
    world.stack.supervisor.stop("box")
    world.stand("box", "revoke")
    world.stand("cpu1", "resume")


def docker(*arguments: str) -> str:
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=True, timeout=60).stdout.strip()


def served(world: World, space: str) -> bool:
    answer = requests.get(f"{world.data}/run/{space}/index.html", timeout=10, allow_redirects=False)
    return (answer.status_code, answer.text) == (200, HELLO)


def leases(world: World) -> list[tuple[Any, ...]]:
    return world.rows(
        """SELECT l.id, l.worker_id, l.released_at FROM jobs_lease l JOIN jobs_job j ON j.id = l.job_id
           WHERE j.repo = 'boxed' ORDER BY l.acquired_at"""
    )


def events(world: World) -> list[str]:
    rows = world.rows(
        """SELECT e.event FROM jobs_jobevent e JOIN jobs_job j ON j.id = e.job_id
           WHERE j.repo = 'boxed' AND NOT e.ignored ORDER BY e.id"""
    )
    return [event for (event,) in rows]


def test_a_restarted_machine_starts_the_same_container_under_the_same_lease_once(world: World, boxed: str) -> None:
    [container] = world.apps_of("box")
    [lease] = leases(world)
    started = docker("inspect", "--format", "{{.State.StartedAt}}", container)
    before = events(world)
    world.stack.supervisor.kill("box")
    docker("kill", container)  # what a restart of the machine leaves: the container has ended, and the boot is another
    journal = world.machines["box"].directory(world.installation) / "jobs" / f"{lease[0]}.json"
    journal.write_text(json.dumps({**json.loads(journal.read_text()), "boot_id": "the boot before"}))
    world.wait_for_state(boxed, "unavailable")

    world.stack.supervisor.resume("box")

    world.wait_for_state(boxed, "running")
    eventually(lambda: served(world, boxed), "it answers")
    assert events(world)[len(before) :] == ["silent", "rebooted", "running"]
    assert (world.apps_of("box"), leases(world)) == ({container}, [lease])
    assert docker("inspect", "--format", "{{.State.StartedAt}}", container) > started


def test_a_machine_that_is_installed_anew_keeps_its_name_its_leases_and_its_containers(
    world: World, owner: Portal, boxed: str
) -> None:
    [container] = world.apps_of("box")
    held = leases(world)
    identity, directory = world.worker_id("box"), world.machines["box"].directory(world.installation)
    world.stack.supervisor.kill("box")
    token = world.manage("issue_enrollment_token", "box", "--replace").strip()
    shutil.rmtree(directory)
    directory.mkdir(mode=0o700)
    world.machines["box"].token_file(world.installation).write_text(token, encoding="utf-8")

    world.stack.supervisor.resume("box")

    eventually(lambda: world.worker_id("box") is not None, "it enrolls")
    world.wait_for_state(boxed, "running")
    eventually(lambda: served(world, boxed), "it answers")
    assert (world.worker_id("box"), world.apps_of("box"), leases(world)) == (identity, {container}, held)
    owner.act(boxed, "stop")
    world.wait_for_state(boxed, "completed")
    eventually(lambda: world.apps_of("box") == set(), "and it can be stopped as ever")
