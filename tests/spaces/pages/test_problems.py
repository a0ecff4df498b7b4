"""Pages for what goes wrong are pages of ours: in the same look, with a way out, and without a stack trace."""

from __future__ import annotations

import shutil

import pytest
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.test import Client
from django.urls import path

from openface import urls
from spaces.forge.local import repository_directory
from tests.spaces.repositories import make_space

pytestmark = pytest.mark.django_db


def test_nothing_there(passer_by: Client) -> None:
    answer = passer_by.get("/no/such/page")
    assert answer.status_code == 404
    assert "All Spaces you may open" in answer.content.decode()


def broken(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("a mistake of ours")


urlpatterns = [path("broken/", broken), *urls.urlpatterns]


@pytest.mark.urls(__name__)
def test_our_own_fault_is_admitted_without_details(passer_by: Client) -> None:
    passer_by.raise_request_exception = False
    answer = passer_by.get("/broken/")
    assert answer.status_code == 500
    assert "Something broke on our side" in answer.content.decode()
    assert "a mistake of ours" not in answer.content.decode()


def test_the_page_for_our_own_fault_needs_neither_a_visitor_nor_the_database(django_assert_num_queries) -> None:
    with django_assert_num_queries(0):
        assert "Something broke on our side" in render_to_string("500.html")


def test_a_host_that_we_do_not_have(passer_by: Client) -> None:
    answer = passer_by.get("/", headers={"host": "evil.example"})
    assert answer.status_code == 400
    assert "This request cannot be understood" in answer.content.decode()


def test_a_repository_that_cannot_be_read_is_said_and_asked_for_again(carol: Client) -> None:
    space = make_space("alice/notes")
    shutil.rmtree(repository_directory(space.repository_id))
    answer = carol.get("/spaces/alice/notes/files/")
    assert answer.status_code == 503
    assert int(answer["Retry-After"]) > 0
    assert "does not answer at the moment" in answer.content.decode()


def test_a_wrong_password_says_so_and_keeps_the_name(passer_by: Client) -> None:
    User.objects.create_user("mika", password="right")
    answer = passer_by.post("/login/", {"username": "mika", "password": "wrong"})
    page = answer.content.decode()
    assert answer.status_code == 200
    assert 'role="alert"' in page
    assert 'value="mika"' in page


def test_sign_in_leads_back_to_the_page_and_to_no_other_site(passer_by: Client) -> None:
    User.objects.create_user("mika", password="right")
    form = {"username": "mika", "password": "right"}
    assert passer_by.post("/login/", {**form, "next": "/fleet/"})["Location"] == "/fleet/"
    assert passer_by.post("/login/", {**form, "next": "https://evil.example/"})["Location"] == "/"


def test_pages_forbid_foreign_scripts_and_frames(carol: Client) -> None:
    make_space("alice/notes")
    for address in ("/", "/spaces/alice/notes/", "/login/"):
        answer = carol.get(address)
        policy = answer["Content-Security-Policy"]
        page = answer.content.decode()
        assert "script-src 'self';" in policy
        assert "style-src 'self';" in policy
        assert "frame-ancestors 'none'" in policy
        for inline in (" style=", " onclick=", " onload=", "<style", "<script>"):
            assert inline not in page
