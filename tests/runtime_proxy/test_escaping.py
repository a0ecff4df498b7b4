"""A page that forgot its prefix is sent back below it, wherever that can be told."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from pytest_django import Settings
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from jobs.models import Job
from runtime_proxy.browser_socket import accept_key
from spaces.origin import runtime_origin
from tests.runtime_proxy.data_plane import DataPlane
from tests.runtime_proxy.upstreams import Asked, Upstream

RunSpace = Callable[..., Job]


@pytest.mark.parametrize(
    "path",
    [
        "/static/x%20y.js?v=1",
        "/",
        "/run/predict",  # Gradio 3
        "/run/predict/",
        "/results/x",
        "/artifacts/x",
        "/git/x",
        "/healthz",
    ],
)
def test_what_a_page_of_an_app_asks_for_is_its_own(data_plane: DataPlane, run_space: RunSpace, path: str):
    run_space()

    answer = data_plane.get(path, method="POST", body=b"x", Referer=f"http://{data_plane.host}/run/alice/app/page")

    assert (answer.status, answer.one("location")) == (307, "/run/alice/app" + path)


@pytest.mark.parametrize("referer", ["", "http://elsewhere/run/alice/app/", "http://{host}/run/", "http://{host}/x"])
def test_without_a_page_of_an_app_nothing_is_guessed(data_plane: DataPlane, run_space: RunSpace, referer: str):
    run_space()

    assert data_plane.get("/static/x.js", Referer=referer.format(host=data_plane.host)).status == 404


def test_our_own_pages_on_that_origin_keep_their_files(data_plane: DataPlane, run_space: RunSpace):
    run_space()

    answer = data_plane.get("/run-static/openface.css", Referer=f"http://{data_plane.host}/run/alice/app/")

    assert answer.status == 200


class TestAHostPerSpace:
    """Each Space has a host of its own: that tells whose request it is, without any Referer."""

    @pytest.fixture(autouse=True)
    def _hosts(self, data_plane: DataPlane, settings: Settings) -> None:
        settings.OPENFACE_RUNTIME_ORIGIN = "http://{space}.run.example"

    def test_the_host_leads_to_its_app(self, data_plane: DataPlane, run_space: RunSpace):
        host = runtime_origin(run_space().space).removeprefix("http://")

        answer = data_plane.get("/static/x.js?v=1", Host=host)

        assert (answer.status, answer.one("location")) == (307, "/run/alice/app/static/x.js?v=1")

    def test_a_host_that_names_nothing_leads_nowhere(self, data_plane: DataPlane, run_space: RunSpace):
        run_space()

        assert data_plane.get("/static/x.js", Host="alice-app-00000000.run.example").status == 404

    def test_a_private_space_does_not_show_by_its_host(
        self, data_plane: DataPlane, run_space: RunSpace, signed_in: Callable[[User], str]
    ):
        host = runtime_origin(run_space(visibility="private").space).removeprefix("http://")
        owner = User.objects.create_user("alice")

        assert data_plane.get("/", Host=host).status == 404
        assert data_plane.get("/", Host=host, Cookie=signed_in(owner)).one("location") == "/run/alice/app/"

    def test_a_websocket_that_left_its_prefix_is_served_there(
        self, data_plane: DataPlane, run_space: RunSpace, upstream: Upstream
    ):
        host = runtime_origin(run_space().space).removeprefix("http://")

        async def open_one(asked: Asked) -> None:
            key = asked.one(b"sec-websocket-key")
            assert key is not None
            await asked.answer(
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Accept: %b\r\n\r\n\x81\x05hello\x88\x02\x03\xe8" % accept_key(key)
            )
            await asked.reader.read()

        upstream.handler = open_one

        with connect(f"ws://{host}/queue/join?x=1", sock=data_plane.connect(), proxy=None, compression=None) as socket:
            assert socket.recv(timeout=10) == "hello"
        assert upstream.seen[0].target == b"/queue/join?x=1"

    def test_a_websocket_of_a_private_space_does_not_show_by_its_host(self, data_plane: DataPlane, run_space: RunSpace):
        host = runtime_origin(run_space(visibility="private").space).removeprefix("http://")

        with pytest.raises(InvalidStatus) as refusal:
            connect(f"ws://{host}/queue/join", sock=data_plane.connect(), proxy=None)

        assert refusal.value.response.status_code == 404
