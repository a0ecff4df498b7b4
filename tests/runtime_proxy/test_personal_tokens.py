"""A program shows a personal token on `/run`: it opens what its person may see, and never travels to an app."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from jobs.models import Job
from runtime_proxy import websocket
from runtime_proxy.close_codes import NO_LONGER_ADMITTED
from spaces import tokens
from spaces.models import LocalCollaborator, LocalRepository, PersonalToken
from tests.factories import ago
from tests.runtime_proxy.data_plane import Answer, DataPlane, refused_handshake, until
from tests.runtime_proxy.test_steady_state import queries as queries
from tests.runtime_proxy.test_websocket import App
from tests.runtime_proxy.test_websocket import app as app
from tests.runtime_proxy.upstreams import Upstream

RunSpace = Callable[..., Job]
SignIn = Callable[[User], str]

FIELD = "X-OpenFace-Authorization"


@pytest.fixture
def alice(transactional_db: None) -> User:
    return User.objects.create_user("alice")


def issue(user: User, name: str = "laptop") -> tokens.Issued:
    return tokens.issue(user, name=name, ends_on=timezone.localdate() + timedelta(days=30))


def get(data_plane: DataPlane, shown: str, path: str = "/run/alice/app/", **headers: str) -> Answer:
    return data_plane.get(path, **{FIELD: shown}, **headers)  # type: ignore[arg-type]  # of headers only


def said(answer: Answer) -> object:
    return json.loads(answer.body)["code"]


def test_a_token_opens_what_its_person_may_see(data_plane: DataPlane, run_space: RunSpace, alice: User):
    run_space(visibility="private")
    stranger = issue(User.objects.create_user("carol")).token

    assert get(data_plane, f"Bearer {issue(alice).token}").status == 200
    assert get(data_plane, f"Bearer {stranger}").status == 404
    assert data_plane.get("/run/alice/app/").status == 401


def test_the_token_stays_here_and_the_apps_own_authorization_passes(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream, alice: User
):
    run_space(visibility="private")
    token = issue(alice).token

    assert get(data_plane, f"bearer {token}", Authorization="Bearer of-the-app").status == 200

    asked = upstream.seen[-1]
    assert asked.all(b"authorization") == [b"Bearer of-the-app"]
    assert not [name for name, value in asked.headers if token.encode() in value]


@pytest.mark.parametrize(
    "shown",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer ofp_short",
        "Bearer ofp_" + "x" * 43,
        "Bearer oft_" + "x" * 43,
        "ofp_" + "x" * 43,
        "Basic ofp_" + "x" * 43,
    ],
)
def test_a_wrong_token_is_refused_and_never_taken_for_nobody(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream, alice: User, signed_in: SignIn, shown: str
):
    run_space(visibility="public")
    cookie = signed_in(alice)

    refused = get(data_plane, shown)
    missing = get(data_plane, shown, "/run/alice/nothing/")

    assert (refused.status, missing.status, refused.body) == (401, 401, missing.body)
    assert said(refused) == "token_refused"
    assert get(data_plane, shown, Cookie=cookie).status == 401, "a session does not make it right"
    assert get(data_plane, shown, Accept="text/html").one("content-type") == "application/json"
    assert refused_handshake(data_plane, "/run/alice/app/ws", **{FIELD: shown}) == 401
    assert upstream.seen == []


def test_a_token_that_is_over_says_no_more_than_a_wrong_one(data_plane: DataPlane, run_space: RunSpace, alice: User):
    run_space()
    token = issue(alice).token
    PersonalToken.objects.update(expires_at=ago(1))

    over, wrong = get(data_plane, f"Bearer {token}"), get(data_plane, "Bearer ofp_" + "x" * 43)

    assert (over.status, over.body) == (401, wrong.body)


def test_of_two_tokens_neither_counts(data_plane: DataPlane, run_space: RunSpace, alice: User):
    run_space()
    token = issue(alice).token
    field = f"{FIELD}: Bearer {token}\r\n"

    twice = data_plane.raw(
        f"GET /run/alice/app/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{field}{field}\r\n".encode()
    )

    assert twice.startswith(b"HTTP/1.1 401 ")


def test_the_token_of_somebody_who_left_opens_nothing(data_plane: DataPlane, run_space: RunSpace, alice: User):
    run_space()
    token = issue(alice).token
    User.objects.update(is_active=False)

    assert get(data_plane, f"Bearer {token}").status == 401


def test_a_revoked_token_is_refused_at_once(data_plane: DataPlane, run_space: RunSpace, alice: User):
    run_space(visibility="private")
    kept, revoked = issue(alice, "kept"), issue(alice, "revoked")
    assert get(data_plane, f"Bearer {revoked.token}").status == 200
    assert get(data_plane, f"Bearer {kept.token}").status == 200

    tokens.revoke(revoked.row, actor=alice)

    until(lambda: get(data_plane, f"Bearer {revoked.token}").status == 401, seconds=5)
    assert get(data_plane, f"Bearer {kept.token}").status == 200


def test_many_requests_with_a_token_ask_the_database_once(
    data_plane: DataPlane, run_space: RunSpace, alice: User, queries: list[str]
):
    run_space(visibility="private")
    shown = f"Bearer {issue(alice).token}"
    assert get(data_plane, shown).status == 200
    assert queries, "the first request asks"
    queries.clear()

    for number in range(20):
        assert get(data_plane, shown, f"/run/alice/app/{number}").status == 200

    assert queries == []


def test_the_last_use_is_known(data_plane: DataPlane, run_space: RunSpace, alice: User):
    run_space()
    issued = issue(alice)
    other = issue(alice, "other")

    assert get(data_plane, f"Bearer {issued.token}").status == 200

    used = PersonalToken.objects.get(pk=issued.row.pk).last_used_at
    assert used is not None and timezone.now() - used < timedelta(minutes=1)
    assert PersonalToken.objects.get(pk=other.row.pk).last_used_at is None


def test_a_token_opens_websockets_until_it_is_revoked(
    data_plane: DataPlane, run_space: RunSpace, app: App, alice: User, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(websocket, "RECHECK_SECONDS", 0.2)
    run_space(visibility="private", port=app.port)
    issued = issue(alice)

    with connect(
        f"ws://{data_plane.host}/run/alice/app/ws",
        additional_headers={FIELD: f"Bearer {issued.token}"},
        proxy=None,
    ) as client:
        client.send("hello")
        assert client.recv(timeout=10) == "hello"
        tokens.revoke(issued.row, actor=alice)
        with pytest.raises(ConnectionClosed) as closed:
            client.recv(timeout=10)

    assert closed.value.rcvd is not None and closed.value.rcvd.code == NO_LONGER_ADMITTED
    assert FIELD not in app.requests[-1].headers


class TestOnThePortal:
    """The address that people know leads on, for programs too."""

    def test_a_token_is_sent_on_to_the_runtime_origin(self, run_space: RunSpace, alice: User):
        run_space(visibility="private")

        def asked(shown: str) -> int:
            return Client().get("/run/alice/app/api?x=1", headers={FIELD: shown}).status_code

        assert asked(f"Bearer {issue(alice).token}") == 307
        assert asked("Bearer ofp_" + "x" * 43) == 401
        assert asked(f"Bearer {issue(User.objects.create_user('carol')).token}") == 404

    def test_a_wrong_token_is_refused_to_who_is_signed_in(self, run_space: RunSpace, alice: User):
        run_space(visibility="private")
        client = Client()
        client.force_login(alice)

        assert client.get("/run/alice/app/", headers={FIELD: "Bearer x"}).status_code == 401
        assert client.get("/run/alice/app/").status_code == 307


def test_a_token_opens_what_a_colleague_shared(data_plane: DataPlane, run_space: RunSpace):
    run_space(visibility="private")
    bob = User.objects.create_user("bob")
    repository = LocalRepository.objects.get(owner="alice", name="app")
    LocalCollaborator.objects.create(repository=repository, user=bob, permission="read")

    assert get(data_plane, f"Bearer {issue(bob).token}").status == 200
