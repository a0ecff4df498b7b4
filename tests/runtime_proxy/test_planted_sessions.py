"""Session cookies that a page has planted, and sessions that are used where they do not belong."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from pytest_django import Settings

from jobs.models import Job
from runtime_proxy import handover
from spaces.origin import runtime_origin
from tests.runtime_proxy.data_plane import DataPlane
from tests.runtime_proxy.upstreams import Upstream

RunSpace = Callable[..., Job]
SignIn = Callable[..., str]

PER_SPACE = "http://{space}.run.of.example"


@pytest.fixture
def owner(transactional_db: None) -> User:
    return User.objects.create_user("alice")


@pytest.fixture
def eve(transactional_db: None) -> User:
    return User.objects.create_user("eve")


def host_of(job: Job) -> str:
    assert job.space is not None
    return runtime_origin(job.space).partition("//")[2]


@pytest.mark.parametrize(
    "planted", ["openface_run=junk; {0}", "{0}; openface_run=junk", "openface_run=; {0}", "{0}; {0}"]
)
def test_what_is_no_session_does_not_hide_one(
    data_plane: DataPlane, run_space: RunSpace, owner: User, signed_in: SignIn, planted: str
):
    run_space(visibility="private")

    assert data_plane.get("/run/alice/app/", Cookie=planted.format(signed_in(owner))).status == 200


@pytest.mark.parametrize("order", ["{0}; {1}", "{1}; {0}"])
def test_sessions_of_two_people_make_nobody(
    data_plane: DataPlane, run_space: RunSpace, owner: User, eve: User, signed_in: SignIn, order: str
):
    job = run_space(visibility="private")
    run_space("alice/open", worker=job.worker)
    cookies = order.format(signed_in(owner), signed_in(eve))

    assert data_plane.get("/run/alice/app/", Cookie=cookies).status == 401
    assert data_plane.get("/run/alice/open/", Cookie=cookies).status == 200


def test_the_way_to_the_portal_removes_what_was_planted(
    data_plane: DataPlane, run_space: RunSpace, owner: User, eve: User, signed_in: SignIn
):
    run_space(visibility="private")
    cookies = f"{signed_in(eve)}; {signed_in(owner)}"

    way = data_plane.navigate("/run/alice/app/deep/x?y", Cookie=cookies, Host="run.of.example:8091")

    lines = set(way.all("set-cookie"))
    gone = "openface_run=; Max-Age=0; Path="
    assert way.status == 302
    for path in ("/run", "/run/", "/run/alice", "/run/alice/", "/run/alice/app", "/run/alice/app/"):
        assert f"{gone}{path}" in lines
        assert f"{gone}{path}; Domain=of.example" in lines
    assert {f"{gone}/; Domain=run.of.example", f"{gone}/; Domain=of.example"} <= lines
    assert f"{gone}/" not in lines, "ours stays"
    assert len(data_plane.navigate("/run/alice/app/").all("set-cookie")) == 1


def test_of_two_nonces_the_one_for_the_whole_host_counts():
    cookies = b"openface_run_start=" + b"e" * 32 + b"; a=1; openface_run_start=" + b"o" * 32

    assert handover.nonce_for(cookies) == "o" * 32


def test_over_tls_no_script_makes_a_session(settings: Settings):
    settings.OPENFACE_RUNTIME_ORIGIN = "https://run.of.example"

    for name in (handover.session_cookie_name(), handover.nonce_cookie_name()):
        assert name.startswith("__Host-Http-openface_")
        line = handover.set_cookie(name, "x").decode()
        assert {"Secure", "HttpOnly", "Path=/"} <= set(line.split("; "))
        assert "Domain" not in line


class TestWhereEachSpaceHasAHost:
    @pytest.fixture(autouse=True)
    def _per_space(self, data_plane: DataPlane, settings: Settings) -> None:
        settings.OPENFACE_RUNTIME_ORIGIN = PER_SPACE

    def test_a_session_opens_its_own_space_only(
        self, data_plane: DataPlane, run_space: RunSpace, owner: User, signed_in: SignIn
    ):
        app = run_space(visibility="private")
        other = run_space("alice/other", visibility="private", worker=app.worker)
        cookie = signed_in(owner, "alice/other")

        assert data_plane.get("/run/alice/other/", Cookie=cookie, Host=host_of(other)).status == 200
        assert data_plane.get("/run/alice/app/", Cookie=cookie, Host=host_of(app)).status == 404

    def test_a_code_brings_the_session_of_its_space(
        self, data_plane: DataPlane, run_space: RunSpace, owner: User, signed_in: SignIn
    ):
        run_space(visibility="private")

        visitor = handover.read(signed_in(owner, "alice/app").partition("=")[2])

        assert (visitor.user_id, visitor.place[:10]) == (owner.pk, "alice-app-")

    def test_another_place_behind_a_code_makes_it_void(self, owner: User):
        nonce = handover.new_nonce()
        code = handover.issue(owner, parent_key="k", browser_hash=handover.digest(nonce), place="alice-app-1")

        assert handover.exchange(code.replace("alice-app-1", "alice-app-2"), nonce=nonce) is None
        assert handover.exchange(code.partition(".")[0], nonce=nonce) is None
        assert handover.exchange(code, nonce=nonce) is not None

    def test_a_session_for_all_spaces_is_none_here_nor_the_reverse(
        self, owner: User, signed_in: SignIn, settings: Settings
    ):
        of_one = signed_in(owner).partition("=")[2]
        settings.OPENFACE_RUNTIME_ORIGIN = "http://run.of.example"
        of_all = signed_in(owner).partition("=")[2]

        assert handover.read(of_all).user_id == owner.pk
        assert handover.read(of_one).is_anonymous
        settings.OPENFACE_RUNTIME_ORIGIN = PER_SPACE
        assert handover.read(of_all).is_anonymous

    def test_a_wrong_host_sends_everybody_on_before_it_decides(
        self, data_plane: DataPlane, run_space: RunSpace, owner: User, signed_in: SignIn, upstream: Upstream
    ):
        job = run_space(visibility="private")
        eves = run_space("eve/page", worker=job.worker)

        for path in ("/run/alice/app/x?y", "/run/ALICE/app/x?y"):
            for answer in (
                data_plane.navigate(path, Host=host_of(eves)),
                data_plane.get(path, Host=host_of(eves), Cookie=signed_in(owner, "eve/page")),
            ):
                assert (answer.status, answer.all("set-cookie")) == (307, [])
                assert answer.one("location") == f"http://{host_of(job)}{path}"
        assert data_plane.get("/run/alice/nothing/", Host=host_of(eves)).status == 307
        assert data_plane.get("/results/alice/app/x/y", Host=host_of(eves)).status == 307
        assert upstream.seen == []

    def test_a_neighbours_page_cannot_act_as_the_visitor(
        self, data_plane: DataPlane, run_space: RunSpace, owner: User, signed_in: SignIn, upstream: Upstream
    ):
        job = run_space(visibility="private")
        eves = run_space("eve/page", worker=job.worker)
        own, neighbour = f"http://{host_of(job)}", f"http://{host_of(eves)}"
        session = {"Host": host_of(job), "Cookie": signed_in(owner)}

        def act(method: str = "POST", **said: str) -> int:
            return data_plane.get("/run/alice/app/x", method=method, body=b"x", **session, **said).status

        assert act(Origin=neighbour) == 401
        assert act(Origin=neighbour, Sec_Fetch_Site="same-site", Sec_Fetch_Mode="no-cors") == 401
        assert act(Origin=neighbour, Sec_Fetch_Site="same-site", Sec_Fetch_Mode="navigate") == 401
        assert act("GET", Sec_Fetch_Site="same-site", Sec_Fetch_Mode="no-cors") == 401
        assert upstream.seen == []
        assert act(Origin=own, Sec_Fetch_Site="same-origin") == 200
        assert act("GET", Sec_Fetch_Site="same-site", Sec_Fetch_Mode="navigate") == 200

    def test_what_is_public_a_neighbours_page_may_have(
        self, data_plane: DataPlane, run_space: RunSpace, owner: User, signed_in: SignIn
    ):
        job = run_space(visibility="public")

        answer = data_plane.get(
            "/run/alice/app/api",
            method="POST",
            body=b"x",
            Host=host_of(job),
            Cookie=signed_in(owner),
            Origin="http://x",
        )

        assert answer.status == 200
