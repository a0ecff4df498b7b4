"""Every cookie of ours has a name by which it is kept from Spaces."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.conf import settings as installation
from django.contrib.auth.models import User
from django.contrib.messages import get_messages
from django.http import HttpResponseBase
from django.test import Client
from pytest_django import Settings

from runtime_proxy import handover
from runtime_proxy.headers import Edge, Mount, PlatformCookies, to_app, to_browser
from tests.spaces.repositories import make_space

COOKIES = PlatformCookies.named(installation.OPENFACE_PLATFORM_COOKIE_PREFIXES)
MOUNT = Mount(prefix=b"/run/o/r")
EDGE = Edge(host=b"localhost:8091", scheme=b"http", forwarded_for=b"192.0.2.7")


def is_kept_from_spaces(name: str) -> bool:
    """Whether the cookie neither travels to a Space nor can be set by one."""
    pair = f"{name}=x".encode()
    asked = to_app([(b"cookie", b"a=1; " + pair)], mount=MOUNT, edge=EDGE, cookies=COOKIES)
    answered = to_browser([(b"set-cookie", pair)], mount=MOUNT, edge=EDGE, cookies=COOKIES)
    return dict(asked)[b"cookie"] == b"a=1" and b"set-cookie" not in dict(answered)


@pytest.fixture
def operator(db: None, settings: Settings, tmp_path: object) -> User:
    settings.OPENFACE_REPOSITORIES_DIR = tmp_path
    make_space("alice/app")
    return User.objects.create_superuser("operator", password="correct horse battery")


def a_day_at_the_portal(operator: User) -> Iterator[HttpResponseBase]:
    """What people do: read, choose a language, sign in, act, administer, leave."""
    client = Client()
    yield client.get("/")
    yield client.post("/language/", {"language": "ja", "next": "/"})
    yield client.get("/login/")
    yield client.post("/login/", {"username": "operator", "password": "wrong"})
    yield client.post("/login/", {"username": "operator", "password": "correct horse battery"})
    yield client.get("/spaces/alice/app/")
    yield client.post("/spaces/alice/app/start")
    yield client.post("/spaces/alice/app/stop")
    yield client.get("/run/alice/app/")
    person = {"username": "bob", "password1": "correct horse battery", "password2": "correct horse battery"}
    yield client.post("/admin/auth/user/add/", {**person, "usable_password": "true"})
    assert User.objects.filter(username="bob").exists(), "which the admin says in a message"
    yield client.get("/admin/")
    yield client.post("/admin/logout/")


def test_each_cookie_that_the_portal_sets_is_kept_from_spaces(operator: User) -> None:
    seen: set[str] = set()
    told: set[str] = set()
    for answer in a_day_at_the_portal(operator):
        seen |= set(answer.cookies)
        told |= {str(message) for message in get_messages(answer.wsgi_request)}  # type: ignore[attr-defined]

    assert {"openface_session", "openface_language"} <= seen
    assert [name for name in seen if not is_kept_from_spaces(name)] == []
    assert any("bob" in message for message in told), "there was a message to carry"


@pytest.mark.parametrize("tls", [False, True])
def test_so_is_each_name_that_the_settings_know(settings: Settings, tls: bool) -> None:
    settings.OPENFACE_RUNTIME_ORIGIN = "https://run.of.example" if tls else "http://run.of.example"
    named = {name: getattr(installation, name) for name in dir(installation) if name.endswith("_COOKIE_NAME")}
    names = [*named.values(), handover.session_cookie_name(), handover.nonce_cookie_name()]

    assert len(names) >= 5
    assert [name for name in names if not is_kept_from_spaces(name)] == []


def test_other_names_are_the_apps(operator: User) -> None:
    for name in ("sessionid", "csrftoken", "messages", "openface", "my_openface_session"):
        assert not is_kept_from_spaces(name)
