"""OPENFACE_GPU_WORKERS_ENABLED off and on again, while a remote machine runs a Space: its app never stops."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
import requests

from tests.e2e.world import Portal, World, eventually

FLAG = "OPENFACE_GPU_WORKERS_ENABLED"


def switch(world: World, value: str) -> None:
    """Restart the control plane with the flag so, as an operator would."""
    world.installation.overrides[FLAG] = value
    supervisor = world.stack.supervisor
    for name, program in (("web", world.stack._web()), ("keeper", world.stack._keeper())):
        supervisor.stop(name)
        supervisor.start(program)
    world.stack.wait_for_answer("web", f"{world.installation.web_url}/healthz")


@pytest.fixture
def on_again(world: World) -> Iterator[None]:
    yield
    if world.installation.overrides[FLAG] != "true":
        switch(world, "true")


def beats_heard(world: World) -> int:
    return int(world.rows("SELECT beat FROM workers_worker WHERE name = 'gpu1'")[0][0])


def after_some_beats(world: World) -> None:
    """Let the remote machine say three times more what it has."""
    before = beats_heard(world)
    eventually(lambda: beats_heard(world) >= before + 3, "gpu1 goes on beating")


def told(person: Portal, space: str) -> bool:
    """Whether the Space's page says what is the matter."""
    page = person.get(f"/run/{space}/", headers={"Accept": "text/html"})
    return page.status_code == 503 and "switched off" in page.text


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("on_again")
def test_remote_spaces_are_unavailable_meanwhile_and_come_back_without_a_restart(world: World, owner: Portal) -> None:
    remote, local = world.space("f-remote", topics="space,gpu"), world.space("f-local")
    coming = world.space("f-coming", topics="space,gpu", boot=600)
    for space in (remote, local):
        owner.act(space, "start")
    for space in (remote, local):
        world.wait_for_state(space, "running")
    owner.act(coming, "start")
    world.wait_for_state(coming, "starting")
    # The data process learns of the gateway by asking; the page is what people wait for.
    eventually(lambda: owner.get(f"/run/{remote}/").status_code == 200, "the app is served")
    app = owner.get(f"/run/{remote}/").text
    runs = world.apps_of("gpu1")

    switch(world, "false")

    world.wait_for_state(remote, "unavailable")
    world.wait_for_state(coming, "queued")
    after_some_beats(world)
    assert world.state(remote) == "unavailable"
    eventually(lambda: told(owner, remote), "whoever opens it is told why", otherwise=world.log_tail)
    eventually(lambda: owner.get(f"/run/{local}/").status_code == 200, "Spaces on the local worker run as before")
    eventually(lambda: len(world.apps_of("gpu1")) == 1, "what had not started was removed")
    assert world.apps_of("gpu1") <= runs
    assert world.state(coming) == "queued"  # nobody may claim it
    token = world.manage("issue_enrollment_token", "f-late").strip()
    body = {"token": token, "nonce": uuid.uuid4().hex, "hostname": "late", "version": "1"}
    refused = requests.post(f"{world.web}/api/v1/workers/enroll", json=body, timeout=20)
    assert (refused.status_code, refused.json()["code"]) == (503, "gpu_workers_disabled")
    owner.act(coming, "stop")
    world.wait_for_state(coming, "cancelled")

    switch(world, "true")

    world.wait_for_state(remote, "running")
    eventually(lambda: owner.get(f"/run/{remote}/").text == app, "the same process answers")
    leases = """SELECT count(*), count(*) FILTER (WHERE l.released_at IS NULL) FROM jobs_lease l
                JOIN jobs_job j ON j.id = l.job_id WHERE j.repo = 'f-remote'"""
    assert world.rows(leases) == [(1, 1)]
    for space in (remote, local):
        owner.act(space, "stop")
    for space in (remote, local):
        world.wait_for_state(space, "completed")
