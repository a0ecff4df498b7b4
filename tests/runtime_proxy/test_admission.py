"""Who may come in, over HTTP and WebSocket, before anything is forwarded."""

from __future__ import annotations

import json
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client
from pytest_django import Settings

from jobs import notices
from jobs.models import Job
from runtime_proxy import handover
from runtime_proxy.models import RuntimeSession
from spaces.models import LocalCollaborator, LocalRepository
from tests.factories import ago
from tests.runtime_proxy.conftest import PORTAL
from tests.runtime_proxy.data_plane import DataPlane, refused_handshake, until
from tests.runtime_proxy.upstreams import Upstream

RunSpace = Callable[..., Job]
SignIn = Callable[[User], str]


@pytest.fixture
def owner(transactional_db: None) -> User:
    return User.objects.create_user("alice")


@pytest.fixture
def stranger(transactional_db: None) -> User:
    return User.objects.create_user("carol")


def test_anybody_may_use_a_public_space(data_plane: DataPlane, run_space: RunSpace):
    run_space(visibility="public")

    assert data_plane.get("/run/alice/app/").status == 200


def test_a_private_space_is_not_there_for_strangers(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream, stranger: User, signed_in: SignIn
):
    run_space(visibility="private")
    cookie = signed_in(stranger)

    hidden = data_plane.get("/run/alice/app/", Cookie=cookie)
    missing = data_plane.get("/run/alice/nothing/", Cookie=cookie)

    assert (hidden.status, missing.status) == (404, 404)
    assert hidden.body == missing.body
    assert data_plane.navigate("/run/alice/app/", Cookie=cookie).status == 404
    assert data_plane.get("/run/alice/app", Cookie=cookie).status == 404
    assert data_plane.get("/run/ALICE/app/", Cookie=cookie).status == 404
    assert data_plane.get("/run/alice/app/", Cookie=cookie, method="POST", body=b"x").status == 404
    assert refused_handshake(data_plane, "/run/alice/app/ws", Cookie=cookie) == 404
    assert upstream.seen == []


def test_without_a_session_private_and_missing_look_the_same(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream
):
    run_space(visibility="private")

    hidden, missing = data_plane.get("/run/alice/app/"), data_plane.get("/run/alice/nothing/")

    assert (hidden.status, missing.status) == (401, 401)
    assert hidden.body == missing.body
    assert json.loads(hidden.body)["code"] == "unauthenticated"
    assert refused_handshake(data_plane, "/run/alice/app/ws") == 401
    assert refused_handshake(data_plane, "/run/alice/nothing/ws") == 401
    assert upstream.seen == []


def test_the_owner_may_use_a_private_space(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream, owner: User, signed_in: SignIn
):
    run_space(visibility="private")

    answer = data_plane.get("/run/alice/app/", Cookie=f"a=1; {signed_in(owner)}; b=2")

    assert answer.status == 200
    assert upstream.seen[0].one(b"cookie") == b"a=1; b=2"


def test_an_internal_space_is_for_who_is_signed_in(
    data_plane: DataPlane, run_space: RunSpace, stranger: User, signed_in: SignIn
):
    run_space(visibility="internal")

    assert data_plane.get("/run/alice/app/").status == 401
    assert data_plane.get("/run/alice/app/", Cookie=signed_in(stranger)).status == 200


def test_the_portals_own_session_opens_nothing_and_goes_nowhere(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream, owner: User, settings: Settings
):
    run_space(visibility="private")
    run_space("alice/open", visibility="public", worker=Job.objects.get().worker)
    portal = Client()
    portal.force_login(owner)
    cookie = f"{settings.SESSION_COOKIE_NAME}={portal.session.session_key}"

    assert data_plane.get("/run/alice/app/", Cookie=cookie).status == 401
    assert data_plane.get("/run/alice/open/", Cookie=cookie).status == 200
    assert [asked.one(b"cookie") for asked in upstream.seen] == [None]


def test_a_forged_session_is_nobody(data_plane: DataPlane, run_space: RunSpace, owner: User, signed_in: SignIn):
    run_space(visibility="private")
    cookie = signed_in(owner)

    for forged in (
        cookie[:-1] + ("A" if cookie[-1] != "A" else "B"),
        "openface_run=x",
        "openface_run=",
        "openface_run",
    ):
        assert data_plane.get("/run/alice/app/", Cookie=forged).status == 401


def test_a_right_that_is_given_counts_at_once(
    data_plane: DataPlane, run_space: RunSpace, stranger: User, signed_in: SignIn
):
    job = run_space(visibility="private")
    cookie = signed_in(stranger)
    assert data_plane.get("/run/alice/app/", Cookie=cookie).status == 404

    repository = LocalRepository.objects.get()
    LocalCollaborator.objects.create(repository=repository, user=stranger, permission="read")
    notices.publish("access", space=job.space_id)

    until(lambda: data_plane.get("/run/alice/app/", Cookie=cookie).status == 200)


class TestSignInOnTheRuntimeOrigin:
    """The hand-over from the portal."""

    def begin(self, data_plane: DataPlane, path: str = "/run/alice/app/deep?x=%20") -> tuple[str, str]:
        """A navigation without a session. Returns the nonce cookie and the portal's address to go to."""
        answer = data_plane.navigate(path)
        assert answer.status == 302
        cookie, location = answer.one("set-cookie"), answer.one("location")
        assert cookie and "HttpOnly" in cookie and "SameSite=Lax" in cookie
        assert location and location.startswith(f"{PORTAL}/run-handover/?")
        return cookie.partition(";")[0], location

    def at_portal(self, user: User | None, location: str, **headers: str) -> tuple[int, str]:
        portal = Client()
        if user:
            portal.force_login(user)
        parts = urlsplit(location)
        answer = portal.get(f"{parts.path}?{parts.query}", headers=headers)
        return answer.status_code, answer.headers.get("Location", "")

    def test_a_signed_in_owner_ends_where_she_wanted_to_go(
        self, data_plane: DataPlane, run_space: RunSpace, upstream: Upstream, owner: User
    ):
        run_space(visibility="private")

        nonce, to_portal = self.begin(data_plane)
        status, back = self.at_portal(owner, to_portal)
        assert status == 302
        assert back.startswith(f"http://{data_plane.host}/run-handover/?code=")
        swapped = data_plane.navigate(back.removeprefix(f"http://{data_plane.host}"), Cookie=nonce)
        session = str(swapped.one("set-cookie")).partition(";")[0]

        assert (swapped.status, swapped.one("location")) == (302, "/run/alice/app/deep?x=%20")
        assert data_plane.navigate("/run/alice/app/deep?x=%20", Cookie=session).status == 200
        assert upstream.seen[0].target.endswith(b"/deep?x=%20")
        assert nonce.partition("=")[2] not in to_portal

    def test_a_code_works_once_and_in_the_browser_that_began(
        self, data_plane: DataPlane, run_space: RunSpace, owner: User
    ):
        run_space(visibility="private")
        nonce, to_portal = self.begin(data_plane)
        other, _ = self.begin(data_plane)
        _, back = self.at_portal(owner, to_portal)
        path = back.removeprefix(f"http://{data_plane.host}")

        assert data_plane.get(path, Cookie=other).status == 400
        assert data_plane.get(path).status == 400
        assert data_plane.get(path, Cookie=nonce).status == 302
        assert data_plane.get(path, Cookie=nonce).status == 400

    def test_an_old_code_is_refused(self, data_plane: DataPlane, run_space: RunSpace, owner: User):
        run_space(visibility="private")
        nonce, to_portal = self.begin(data_plane)
        _, back = self.at_portal(owner, to_portal)
        RuntimeSession.objects.update(created_at=ago(handover.CODE_SECONDS + 1))

        assert data_plane.get(back.removeprefix(f"http://{data_plane.host}"), Cookie=nonce).status == 400

    def test_a_stranger_gets_no_code(self, data_plane: DataPlane, run_space: RunSpace, stranger: User):
        run_space(visibility="private")
        _, to_portal = self.begin(data_plane)

        assert self.at_portal(stranger, to_portal)[0] == 404
        assert not RuntimeSession.objects.exists()

    def test_who_is_not_signed_in_goes_to_the_sign_in_page(self, data_plane: DataPlane, run_space: RunSpace):
        run_space(visibility="private")
        _, to_portal = self.begin(data_plane)

        status, location = self.at_portal(None, to_portal)

        assert (status, urlsplit(location).path) == (302, "/login/")
        assert parse_qs(urlsplit(location).query)["next"][0].startswith("/run-handover/?to=")

    def test_within_a_frame_the_way_to_the_sign_in_page_is_a_link(self, data_plane: DataPlane, run_space: RunSpace):
        run_space(visibility="private")
        _, to_portal = self.begin(data_plane)

        status, back = self.at_portal(None, to_portal, Sec_Fetch_Dest="iframe", Sec_Fetch_Mode="navigate")
        page = data_plane.navigate(back.removeprefix(f"http://{data_plane.host}"), Sec_Fetch_Dest="iframe")

        assert status == 302
        assert page.status == 401
        assert b'target="_blank"' in page.body, "the portal's frame lets no page lead its window elsewhere"

    @pytest.mark.parametrize(
        "query",
        [
            "to=//evil/x&browser={0}",
            "to=https://evil/run/alice/app/&browser={0}",
            "to=/admin/&browser={0}",
            "to=/run/alice/app/%0d%0aX:y&browser={0}",
            "to=/run/alice/app/&browser=short",
            "to=/run/alice/app/",
            "",
        ],
    )
    def test_the_portal_sends_nobody_elsewhere(self, run_space: RunSpace, owner: User, query: str, settings: Settings):
        run_space(visibility="private")

        status, _ = self.at_portal(owner, f"{PORTAL}/run-handover/?" + query.format("0" * 64))

        assert status == 404

    def test_the_session_dies_with_the_portals(self, run_space: RunSpace, owner: User):
        portal = Client()
        portal.force_login(owner)
        nonce = handover.new_nonce()
        code = handover.issue(owner, parent_key=str(portal.session.session_key), browser_hash=handover.digest(nonce))
        visitor = handover.read(str(handover.exchange(code, nonce=nonce)))
        assert handover.recheck(visitor).value == visitor

        portal.logout()

        assert handover.recheck(visitor).value.is_anonymous

    def test_the_session_dies_with_the_password_and_with_the_account(self, run_space: RunSpace, owner: User):
        portal = Client()
        portal.force_login(owner)
        key = str(portal.session.session_key)
        assert handover.user_of_portal_session(key) == owner.pk

        owner.set_password("another")
        owner.save()
        assert handover.user_of_portal_session(key) is None

        portal.force_login(owner)
        key = str(portal.session.session_key)
        User.objects.update(is_active=False)
        assert handover.user_of_portal_session(key) is None
        assert Session.objects.filter(pk=key).exists()
