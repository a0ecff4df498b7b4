"""A cookie is whatever somebody sends: a key that nobody was given makes its bearer anonymous, and nothing else."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from openface.sessions import SessionStore
from runtime_proxy import handover
from runtime_proxy.access import ANYBODY
from spaces import live_visit

pytestmark = pytest.mark.django_db

ODD = [
    "\0" * 10,
    "a" * 31 + "\0",
    "a" * 33,
    "A" * 32,
    "a" * 32 + "\n",
    "é" * 32,
    "\ud800" * 32,
    "' OR 1=1 --" * 3,
    "",
    "x" * 4000,
]


def quoted(value: str) -> str:
    """The value as a cookie can carry it, with octal escapes."""
    return '"' + "".join(f"\\{byte:03o}" for byte in value.encode("utf-8", "surrogatepass")) + '"'


@pytest.mark.parametrize("key", ODD)
def test_a_key_of_another_shape_is_nobodys(key: str) -> None:
    for path, status in (("/spaces/", 200), ("/login/", 200), ("/healthz", 200), ("/nowhere", 404), ("/admin/", 302)):
        answer = Client(headers={"Cookie": f"openface_session={quoted(key)}"}).get(path)
        assert answer.status_code == status, path
    assert SessionStore(key).session_key is None
    assert handover.user_of_portal_session(key) is None
    assert handover.read(key) == ANYBODY


@pytest.mark.parametrize("key", ODD)
def test_live_pages_take_its_bearer_for_anonymous(key: str) -> None:
    scope = {"headers": [(b"cookie", f"openface_session={quoted(key)}".encode())]}
    assert not live_visit._user(scope).is_authenticated  # type: ignore[arg-type]  # the part of a scope that is read


def test_a_key_that_was_given_out_opens_its_session() -> None:
    user = User.objects.create_user("alice")
    client = Client()
    client.force_login(user)
    key = client.cookies["openface_session"].value

    assert "alice" in client.get("/spaces/").content.decode()
    assert SessionStore(key).session_key == key
    assert handover.user_of_portal_session(key) == user.pk


def test_one_may_sign_in_with_an_odd_cookie(client: Client) -> None:
    User.objects.create_user("alice", password="a-long-one")
    # As a header: newer versions of Python do not let a client put such a thing into its jar.
    odd = 'openface_session="' + "\\000" * 10 + '"'

    answer = client.post("/login/", {"username": "alice", "password": "a-long-one"}, headers={"cookie": odd})

    assert answer.status_code == 302
    assert SessionStore(answer.cookies["openface_session"].value).session_key is not None
