"""Operators place a Space on a tab of its own, after they have read what it does; everybody else is only told."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from jobs.models import AuditEvent, Job
from spaces import placement
from spaces.models import Space
from tests.factories import GpuWorkerFactory, UptimeFactory
from tests.spaces.pages import runs
from tests.spaces.repositories import make_space
from workers import standing
from workers.models import Worker

pytestmark = pytest.mark.django_db

TAB = "/spaces/alice/notes/placement/"


@pytest.fixture(autouse=True)
def space(db: None) -> Space:
    UptimeFactory.create()
    GpuWorkerFactory.create(name="atlas")
    return make_space("alice/notes", topics=("space", "gpu", "vram-12gb"))


def test_a_choice_is_shown_with_what_it_does_before_it_is_made(otto: Client, space: Space) -> None:
    runs.submit(space, requirement=runs.GPU)

    page = otto.get(TAB, {"placement": "cpu", "worker": "atlas"}).content.decode()

    assert "It would need a CPU worker." in page
    assert "The run in line gets the new needs at once and keeps its place." in page
    assert "Place it: On a CPU" in page
    assert Space.objects.get().placement == "automatic"


def test_what_the_topics_ask_for_stands_beside_automatic(otto: Client) -> None:
    assert "They ask for a GPU with at least 12 GB." in otto.get(TAB).content.decode()


def test_it_is_made_with_a_reason_and_said(otto: Client, space: Space) -> None:
    runs.submit(space, requirement=runs.GPU)

    answer = otto.post(TAB, {"placement": "worker", "worker": "atlas", "reason": "its data is there"}, follow=True)

    page = answer.content.decode()
    assert "Placed: On atlas only. The run in line has the new needs and kept its place." in page
    assert "placed by an operator: on atlas only" in page
    assert str(Job.objects.get().requirement.worker) == "atlas"
    event = AuditEvent.objects.get(act="space_placement")
    assert (event.actor_name, event.reason, event.address) == ("otto", "its data is there", "127.0.0.1")


def test_a_running_app_is_not_touched_and_that_is_said(otto: Client, space: Space) -> None:
    runs.submit(space, requirement=runs.GPU)
    runs.claim(Worker.objects.get(name="atlas")).to_running()

    page = otto.post(TAB, {"placement": "cpu"}, follow=True).content.decode()

    assert "What runs now goes on where it is, until somebody restarts it." in page
    assert Job.objects.get().state == "running"


def test_a_wish_that_cannot_be_set_is_a_sentence(otto: Client) -> None:
    assert "Not possible" in otto.get(TAB, {"placement": "worker", "worker": "nobody"}).content.decode()
    page = otto.post(TAB, {"placement": "worker", "worker": "nobody"}, follow=True).content.decode()
    assert "There is no worker nobody." in page
    assert Space.objects.get().placement == "automatic"


def test_a_named_worker_that_was_revoked_is_still_shown_as_the_choice(otto: Client, space: Space) -> None:
    placement.place(space.pk, placement.wish("worker", "atlas"), actor=None)
    standing.revoke(Worker.objects.get(name="atlas").pk, actor=None)

    page = otto.get(TAB).content.decode()

    assert "atlas (revoked)" in page
    assert "no worker can take it as things are" in page


def test_the_history_tells_of_it(otto: Client, space: Space) -> None:
    runs.submit(space, requirement=runs.GPU)
    otto.post(TAB, {"placement": "cpu", "reason": "no GPU for weeks"})

    answer = otto.get("/spaces/alice/notes/activity/")

    assert [move.state for run in answer.context["runs"] for move in run.moves] == ["queued", "queued"]
    assert "An operator placed it on a CPU: no GPU for weeks." in answer.content.decode()


def test_owners_see_the_placement_and_cannot_change_it(alice: Client, space: Space) -> None:
    placement.place(space.pk, placement.wish("cpu"), actor=None)

    page = alice.get("/spaces/alice/notes/").content.decode()

    assert "placed by an operator: on a CPU" in page
    assert reverse("space_placement", args=["alice", "notes"]) not in page
    assert alice.get(TAB).status_code == 403
    assert alice.post(TAB, {"placement": "gpu"}).status_code == 403
    assert Space.objects.get().placement == "cpu"


def test_for_somebody_who_may_not_see_the_space_there_is_no_such_page(carol: Client, passer_by: Client) -> None:
    make_space("dora/quiet", visibility="private")

    for client in (carol, passer_by):
        assert client.get("/spaces/dora/quiet/placement/").status_code == 404
        assert client.post("/spaces/dora/quiet/placement/", {"placement": "cpu"}).status_code == 404
