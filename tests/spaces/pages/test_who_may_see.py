"""A private Space does not exist for strangers, on any address; a reader may look, and not touch."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from jobs.models import Job
from spaces.models import LocalCollaborator, LocalRepository, Space
from tests.spaces.pages import runs
from tests.spaces.pages.conftest import signed_in
from tests.spaces.repositories import make_space
from workers.models import Worker

pytestmark = pytest.mark.django_db

ACTS = ("start", "stop", "restart")


@pytest.fixture
def private(worker: Worker) -> Space:
    space = make_space("alice/secret", visibility="private")
    runs.submit(space)
    runs.claim(worker).to_running().write("run", "hello\n")
    return space


def addresses(space: Space) -> list[str]:
    """Every address that tells something of a Space."""
    lease = space.jobs.get().leases.get()
    base = f"/spaces/{space}/"
    return [
        base,
        f"{base}?part=head",
        f"{base}?part=stage",
        f"{base}status.json",
        f"{base}logs/",
        f"{base}logs/?stream=run&part=log",
        f"{base}logs/{lease.id}/run.txt",
        f"{base}activity/",
        f"{base}files/",
        f"{base}files/app.py",
        f"{base}raw/{space.head_revision}/app.py",
    ]


def test_every_address_works_for_the_owner(private: Space, alice: Client) -> None:
    answers = {address: alice.get(address).status_code for address in addresses(private)}
    assert answers == dict.fromkeys(answers, 200)


def test_a_stranger_finds_nothing_at_any_address(private: Space, carol: Client, passer_by: Client) -> None:
    for client in (carol, passer_by):
        answers = {address: client.get(address) for address in addresses(private)}
        assert {address: answer.status_code for address, answer in answers.items()} == dict.fromkeys(answers, 404)
        for answer in answers.values():
            assert "A title" not in answer.content.decode()


def test_nothing_and_not_yours_look_the_same(private: Space, carol: Client) -> None:
    def seen(name: str) -> str:
        text = carol.get(f"/spaces/alice/{name}/").content.decode().replace(name, "")
        return re.sub(r'name="csrfmiddlewaretoken" value="\w+"', "", text)

    assert seen("secret") == seen("absent")


@pytest.mark.parametrize("act", ACTS)
def test_a_stranger_can_do_nothing(private: Space, carol: Client, passer_by: Client, act: str) -> None:
    for client in (carol, passer_by):
        assert client.post(f"/spaces/alice/secret/{act}").status_code == 404
    assert private.jobs.get().state == "running"


def test_it_is_on_nobody_elses_list(private: Space, alice: Client, carol: Client, passer_by: Client) -> None:
    assert "alice/secret" in alice.get("/").content.decode()
    for client in (carol, passer_by):
        assert "alice/secret" not in client.get("/spaces/?q=secret").content.decode().replace('value="secret"', "")


@pytest.mark.parametrize("act", ACTS)
def test_a_reader_may_look_and_is_told_why_he_may_not_start(private: Space, teammate: User, act: str) -> None:
    LocalCollaborator.objects.create(
        repository=LocalRepository.objects.get(name="secret"), user=teammate, permission="read"
    )
    bob = signed_in(teammate)
    assert bob.get("/spaces/alice/secret/").status_code == 200
    answer = bob.post(f"/spaces/alice/secret/{act}")
    assert answer.status_code == 403
    assert "Only people who may write to alice/secret" in answer.content.decode()
    assert Job.objects.count() == 1
    assert private.jobs.get().stop_requested_at is None


def test_a_reader_sees_no_buttons_and_why(private: Space, teammate: User) -> None:
    LocalCollaborator.objects.create(
        repository=LocalRepository.objects.get(name="secret"), user=teammate, permission="read"
    )
    page = signed_in(teammate).get("/spaces/alice/secret/").content.decode()
    assert "/stop" not in page
    assert "Only people who may write" in page


def test_the_log_of_another_space_is_not_reached_through_a_public_one(private: Space, carol: Client) -> None:
    make_space("alice/open")
    lease = private.jobs.get().leases.get()
    assert carol.get(f"/spaces/alice/open/logs/{lease.id}/run.txt").status_code == 404
    assert carol.get(f"/spaces/alice/open/logs/?lease={lease.id}").status_code == 404


@pytest.mark.parametrize(
    "path", ["/spaces/a%00b/c/", "/spaces/alice/open/files/..%2f..%2fetc/passwd", "/spaces/alice/open/files/a%00b"]
)
def test_addresses_that_nobody_means_are_not_found(carol: Client, path: str) -> None:
    make_space("alice/open")
    assert carol.get(path).status_code == 404
