"""The portal's `/run/…`: it leads to the runtime origin, and carries WebSockets in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from jobs.models import Job
from runtime_proxy import portal_websocket
from runtime_proxy.plane import close_plane
from spaces.origin import place_of
from tests.runtime_proxy.conftest import PORTAL
from tests.runtime_proxy.data_plane import DEADLINE, DataPlane, refused_handshake, serving
from tests.runtime_proxy.raw_sockets import RawBrowser
from tests.runtime_proxy.test_websocket import App, app
from tests.spaces.pages.server import Portal, serve
from tests.spaces.repositories import make_space

RunSpace = Callable[..., Job]
ORIGIN = "http://localhost:8091"

__all__ = ["app"]  # a fixture


@pytest.fixture(autouse=True)
def _origin(settings: Settings) -> None:
    settings.OPENFACE_RUNTIME_ORIGIN = ORIGIN


@pytest.mark.parametrize("method", ["get", "post", "put", "delete", "head", "options"])
def test_every_method_is_sent_on_with_its_path_and_query(transactional_db: None, method: str):
    make_space("alice/App")

    answer = getattr(Client(enforce_csrf_checks=True), method)("/run/alice/App/a/b?x=%20&y")

    assert answer.status_code == 307
    assert answer.headers["Location"] == f"{ORIGIN}/run/alice/App/a/b?x=%20&y"
    assert "no-store" in answer.headers["Cache-Control"]


def test_the_canonical_name_and_the_slash_are_put_right_at_once(transactional_db: None):
    make_space("alice/App")

    assert Client().get("/run/ALICE/app?x").headers["Location"] == f"{ORIGIN}/run/alice/App/?x"


def test_strangers_learn_nothing(transactional_db: None):
    make_space("alice/app", visibility="private")
    stranger = Client()
    stranger.force_login(User.objects.create_user("carol"))
    navigation = {"Accept": "text/html"}

    assert stranger.get("/run/alice/app/").status_code == 404
    assert stranger.get("/run/alice/nothing/").status_code == 404
    for path in ("/run/alice/app/", "/run/alice/nothing/"):
        assert Client().get(path).status_code == 401
        asked = Client().get(path, headers=navigation)
        assert (asked.status_code, asked.headers["Location"]) == (302, f"/login/?next={path}")


def test_the_owner_is_sent_on(transactional_db: None):
    make_space("alice/app", visibility="private")
    owner = Client()
    owner.force_login(User.objects.create_user("alice"))

    assert owner.get("/run/alice/app/").status_code == 307


def test_a_space_may_have_an_origin_of_its_own(transactional_db: None, settings: Settings):
    settings.OPENFACE_RUNTIME_ORIGIN = "https://{space}.run.example.org"
    make_space("alice/app")
    make_space("alice-app/x")

    first = Client().get("/run/alice/app/").headers["Location"]
    second = Client().get("/run/alice-app/x/").headers["Location"]

    assert first.startswith("https://alice-app-") and first.endswith(".run.example.org/run/alice/app/")
    assert first.split("/")[2] != second.split("/")[2]


def test_no_two_spaces_have_one_host(settings: Settings):
    """With 32 bits of a hash these two had, and the second's page read the first as its owner."""
    settings.OPENFACE_RUNTIME_ORIGIN = "https://{space}.run.example.org"
    found = place_of("owner-priv", "_----__---___--------_____---_-__--_-")

    assert place_of("owner", "priv") != found
    assert len(place_of("owner", "priv").rpartition("-")[2]) == 16  # of 32 letters: 80 bits
    assert len(place_of("o" * 40, "r" * 100)) <= 63


def test_a_space_is_served_on_its_own_origin_only(data_plane: DataPlane, run_space: RunSpace, settings: Settings):
    run_space()
    settings.OPENFACE_RUNTIME_ORIGIN = "http://{space}.run.localhost:8091"

    elsewhere = data_plane.get("/run/alice/app/x?y")
    own = str(elsewhere.one("location")).split("/")[2]

    assert elsewhere.status == 307
    assert str(elsewhere.one("location")).endswith("/run/alice/app/x?y")
    assert data_plane.get("/run/alice/app/x?y", Host=own).status == 200
    assert data_plane.get("/run/alice/app/", Host="bob-other-12345678.run.localhost:8091").status == 307


@pytest.mark.parametrize("host", ["portal.example", "PORTAL.example:8091", "portal.example.:8091"])
def test_no_space_is_served_on_the_portals_host_where_spaces_have_another(
    data_plane: DataPlane, run_space: RunSpace, settings: Settings, host: str
):
    """Its pages would have the portal's cookies to plant in."""
    run_space()
    settings.PUBLIC_BASE_URL = "http://portal.example"
    settings.OPENFACE_RUNTIME_ORIGIN = "http://run.portal.example"

    elsewhere = data_plane.get("/run/alice/app/x?y", Host=host)

    assert elsewhere.status == 307
    assert elsewhere.one("location") == "http://run.portal.example/run/alice/app/x?y"
    with RawBrowser(data_plane, host=host) as browser:
        assert browser.status == 404
    assert data_plane.get("/run/alice/app/x?y", Host="run.portal.example").status == 200


class TestWebSocketInPlace:
    """On the portal's own origin, by the portal's own session."""

    @pytest.fixture
    def portal(self, transactional_db: None) -> Iterator[DataPlane]:
        async def application(scope: object, receive: object, send: object) -> None:
            if scope["type"] == "lifespan":  # type: ignore[index]
                await receive()  # type: ignore[operator]
                await send({"type": "lifespan.startup.complete"})  # type: ignore[operator]
                await receive()  # type: ignore[operator]
                await close_plane()
                await send({"type": "lifespan.shutdown.complete"})  # type: ignore[operator]
            else:
                await portal_websocket.application(scope, receive, send)  # type: ignore[arg-type]

        with serving(application, http="httptools") as server:  # any server that speaks in messages
            yield server

    def test_a_page_of_the_runtime_origin_may_open_one(self, portal: DataPlane, run_space: RunSpace, app: App):
        run_space(port=app.port)

        for origin in (PORTAL, ORIGIN):
            with connect(f"ws://{portal.host}/run/alice/app/ws", origin=Origin(origin), proxy=None) as client:
                client.send("hello")
                assert client.recv(timeout=10) == "hello"

    def test_other_pages_may_not(self, portal: DataPlane, run_space: RunSpace, app: App):
        run_space(port=app.port)

        for origin in ({"Origin": "http://evil"}, {"Origin": "null"}, {}):
            assert refused_handshake(portal, "/run/alice/app/ws", **origin) == 404
        assert app.requests == []

    def test_the_portals_session_counts_here(
        self, portal: DataPlane, run_space: RunSpace, app: App, settings: Settings
    ):
        run_space(port=app.port, visibility="private")
        owner, stranger = Client(), Client()
        owner.force_login(User.objects.create_user("alice"))
        stranger.force_login(User.objects.create_user("carol"))

        def cookie(client: Client) -> str:
            return f"{settings.SESSION_COOKIE_NAME}={client.session.session_key}"

        with connect(
            f"ws://{portal.host}/run/alice/app/ws",
            origin=Origin(PORTAL),
            additional_headers={"Cookie": cookie(owner)},
            proxy=None,
        ) as client:
            client.send("hello")
            assert client.recv(timeout=10) == "hello"
        assert "Cookie" not in app.requests[0].headers
        assert refused_handshake(portal, "/run/alice/app/ws", Origin=PORTAL, Cookie=cookie(stranger)) == 404
        assert refused_handshake(portal, "/run/alice/app/ws", Origin=PORTAL) == 401


def test_a_handover_with_too_many_fields_is_refused(transactional_db: None):
    assert Client().get("/run-handover/?" + "&".join(f"a{number}=1" for number in range(21))).status_code == 400


class TestWebSocketThroughDaphne:
    """The portal as an operator starts it."""

    @pytest.fixture
    def portal(self, transactional_db: None, postgres_url: str, tmp_path: Path) -> Iterator[Portal]:
        yield from serve(postgres_url, tmp_path)

    def test_messages_pass_both_ways(self, portal: Portal, run_space: RunSpace, app: App):
        run_space(port=app.port)

        address = f"ws://127.0.0.1:{portal.port}/run/alice/app/ws"
        with connect(address, origin=Origin(portal.url), proxy=None) as client:
            client.send("hello")
            assert client.recv(timeout=10) == "hello"

        assert app.requests[0].headers["X-Forwarded-Proto"] == "http"
        assert "Traceback" not in portal.log.read_text()

    def test_no_spelling_of_a_path_is_lost(self, portal: Portal, run_space: RunSpace):
        run_space()
        connection = HTTPConnection("127.0.0.1", portal.port, timeout=DEADLINE)

        for path in ("/%0ax", "/x%0a", "//x/../y", "/%2e%2e/%2f", "/%E3%81%82"):
            connection.request("GET", f"/run/alice/app{path}")
            answer = connection.getresponse()
            answer.read()
            assert str(answer.headers["Location"]).endswith(f"/run/alice/app{path}")
        connection.close()

    def test_other_paths_are_refused_quietly(self, portal: Portal):
        for path in ("/", "/ws", "/run", "/live/spaces", "/run/alice"):
            with pytest.raises(InvalidStatus) as refusal:
                connect(f"ws://127.0.0.1:{portal.port}{path}", origin=Origin(portal.url), proxy=None)
            assert refusal.value.response.status_code == 403

        assert "Traceback" not in portal.log.read_text()


def test_a_sign_in_may_end_on_the_runtime_origin(transactional_db: None):
    sign_in = Client().get("/login/").headers["Content-Security-Policy"]
    list_of_spaces = Client().get("/spaces/").headers["Content-Security-Policy"]

    assert f"form-action 'self' {ORIGIN};" in sign_in
    assert "form-action 'self';" in list_of_spaces
    assert f"frame-src 'self' {ORIGIN};" in list_of_spaces
