"""Pages when something below them is away, and the headers that every page carries."""

from __future__ import annotations

import pytest
from django.contrib.sessions.backends import db
from django.db import DataError, OperationalError
from django.test import Client
from pytest_django import Settings

from openface import urls
from openface.security_headers import content_security_policy


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("error", "status"), [(OperationalError("the server closed the connection"), 503), (ZeroDivisionError(), 500)]
)
def test_a_database_that_is_away_is_a_503_and_a_defect_is_a_500(
    monkeypatch: pytest.MonkeyPatch, error: Exception, status: int
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(urls, "database_now", fail)

    answer = Client(raise_request_exception=False).get("/healthz")

    assert answer.status_code == status
    assert ("Retry-After" in answer.headers) == (status == 503)
    assert str(error) not in answer.content.decode() or not str(error)


@pytest.mark.django_db
@pytest.mark.parametrize(("error", "status"), [(OperationalError("gone"), 503), (DataError("not a text"), 500)])
def test_the_page_for_a_failure_asks_nothing_of_the_session_that_failed(
    monkeypatch: pytest.MonkeyPatch, error: Exception, status: int
) -> None:
    def fail(self: db.SessionStore) -> None:
        raise error

    monkeypatch.setattr(db.SessionStore, "load", fail)
    client = Client(raise_request_exception=False, headers={"Cookie": f"openface_session={'a' * 32}"})

    for path in ("/spaces/", "/nowhere", "/login/"):
        answer = client.get(path)
        assert answer.status_code == status
        assert b"<h1>" in answer.content
        assert "default-src 'none'" in answer["Content-Security-Policy"]


def test_frames_may_come_from_the_runtime_origin_only(settings: Settings) -> None:
    settings.OPENFACE_RUNTIME_ORIGIN = "https://run.example"
    assert "frame-src 'self' https://run.example;" in content_security_policy("/spaces/")


def test_where_each_space_has_its_own_host_all_of_them_may_be_framed(settings: Settings) -> None:
    settings.OPENFACE_RUNTIME_ORIGIN = "https://{space}.run.example"
    assert "frame-src 'self' https://*.run.example;" in content_security_policy("/spaces/")
