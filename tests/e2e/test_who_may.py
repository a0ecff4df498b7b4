"""A private Space does not exist for strangers, whatever they ask; a reader may look and not act."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import aiohttp
import pytest

from tests.e2e.world import Portal, World


@pytest.fixture(scope="module")
def secret(world: World, owner: Portal) -> Iterator[str]:
    """A private Space that runs; `reader` may read it."""
    space = world.space("secret", visibility="private")
    world.manage(
        "shell",
        "-c",
        "from spaces.models import *; from django.contrib.auth.models import User\n"
        "LocalCollaborator.objects.create(repository=LocalRepository.objects.get(name='secret'), "
        "user=User.objects.get(username='reader'), permission='read')",
    )
    owner.act(space, "start")
    world.wait_for_state(space, "running")
    yield space
    owner.act(space, "stop")
    world.wait_for_state(space, "completed")


PAGES = ["", "logs/", "activity/", "files/", "status.json"]


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("person", ["stranger", None])
def test_a_stranger_finds_no_page_of_it(world: World, secret: str, person: str | None, page: str) -> None:
    assert world.portal(person).get(f"/spaces/{secret}/{page}").status_code == 404


@pytest.mark.parametrize("page", PAGES)
def test_a_reader_may_look(world: World, secret: str, page: str) -> None:
    assert world.portal("reader").get(f"/spaces/{secret}/{page}").status_code == 200


@pytest.mark.parametrize("act", ["start", "stop", "restart"])
def test_a_reader_may_not_act_and_is_told_why(world: World, secret: str, act: str) -> None:
    answer = world.portal("reader").post(f"/spaces/{secret}/{act}")
    assert answer.status_code == 403
    assert "write" in answer.text.lower()


@pytest.mark.parametrize("act", ["start", "stop", "restart"])
def test_a_stranger_finds_nothing_to_act_on(world: World, secret: str, act: str) -> None:
    assert world.portal("stranger").post(f"/spaces/{secret}/{act}").status_code == 404


def test_it_is_in_nobody_elses_list(world: World, secret: str) -> None:
    assert secret in world.portal("reader").get("/spaces/").text
    for person in ("stranger", None):
        assert "secret" not in world.portal(person).get("/spaces/").text


def test_run_is_a_404_for_strangers_and_asks_the_anonymous_to_sign_in(world: World, secret: str) -> None:
    assert world.portal("stranger").get(f"/run/{secret}/").status_code == 404
    navigation = {"Accept": "text/html", "Sec-Fetch-Mode": "navigate"}
    nobody = world.portal().get(f"/run/{secret}/", headers=navigation)
    assert "hello from pid" not in nobody.text
    assert "/login/" in nobody.url


def test_run_on_the_data_plane_without_a_session_gives_nothing_away(world: World, secret: str) -> None:
    client = world.portal().session
    private = client.get(f"{world.data}/run/{secret}/", headers={"Accept": "application/json"}, timeout=10)
    missing = client.get(f"{world.data}/run/owner/no-such/", headers={"Accept": "application/json"}, timeout=10)
    assert private.status_code == missing.status_code
    assert private.status_code in (401, 404)
    assert private.text.replace("secret", "") == missing.text.replace("no-such", "")


def test_readers_and_owner_reach_the_app(world: World, secret: str) -> None:
    for person in ("reader", "owner"):
        page = world.portal(person).get(f"/run/{secret}/", headers={"Accept": "text/html"})
        assert (page.status_code, page.text[:14]) == (200, "hello from pid")


@pytest.mark.parametrize("origin", ["data", "web"])
def test_a_websocket_is_refused_before_anything_is_forwarded(world: World, secret: str, origin: str) -> None:
    async def connect() -> int:
        url = f"{getattr(world, origin)}/run/{secret}/ws"
        async with aiohttp.ClientSession() as session:
            try:
                async with session.ws_connect(url):
                    return 101
            except aiohttp.WSServerHandshakeError as refusal:
                return refusal.status

    assert asyncio.run(connect()) in (401, 403, 404)


def test_the_live_streams_are_closed_to_strangers(world: World, secret: str) -> None:
    (lease,) = world.rows("SELECT l.id FROM jobs_lease l JOIN jobs_job j ON j.id = l.job_id WHERE j.repo = 'secret'")[0]
    for path in (f"/live/spaces/{secret}/", f"/live/spaces/{secret}/log?stream=run&lease={lease}&offset=0"):
        for person in ("stranger", None):
            assert world.portal(person).get(path, stream=True).status_code == 404
        with world.portal("reader").get(path, stream=True) as stream:
            assert stream.status_code == 200
            assert stream.headers["Content-Type"].startswith("text/event-stream")


def test_a_person_who_loses_the_right_loses_the_app(world: World, secret: str) -> None:
    reader = world.portal("reader")
    assert reader.get(f"/run/{secret}/", headers={"Accept": "text/html"}).status_code == 200
    world.manage(
        "shell",
        "-c",
        "from spaces.models import *; from jobs import notices; from django.db import transaction\n"
        "LocalCollaborator.objects.filter(user__username='reader').delete()\n"
        "with transaction.atomic(): notices.publish('access', space=Space.objects.get(name='secret').pk)",
    )
    assert reader.get(f"/spaces/{secret}/").status_code == 404
    assert reader.get(f"/run/{secret}/", headers={"Accept": "text/html"}).status_code == 404
