"""Start, Stop and Restart are forms: idempotent, audited, and refused without a token."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from jobs.models import AuditEvent, Job
from spaces.models import Space
from tests.spaces.pages import runs
from tests.spaces.repositories import commit, make_space
from workers.models import Worker

pytestmark = pytest.mark.django_db


@pytest.fixture
def space() -> Space:
    return make_space("alice/notes")


def test_start_queues_the_newest_commit(space: Space, alice: Client) -> None:
    answer = alice.post("/spaces/alice/notes/start")
    assert (answer.status_code, answer["Location"]) == (303, "/spaces/alice/notes/")
    job = Job.objects.get()
    assert (job.state, job.revision) == ("queued", space.head_revision)
    assert AuditEvent.objects.get().actor_name == "alice"


def test_a_second_start_changes_nothing(space: Space, alice: Client) -> None:
    alice.post("/spaces/alice/notes/start")
    alice.post("/spaces/alice/notes/start")
    assert Job.objects.count() == 1


def test_a_second_stop_changes_no_time(space: Space, alice: Client, worker: Worker) -> None:
    alice.post("/spaces/alice/notes/start")
    runs.claim(worker)
    alice.post("/spaces/alice/notes/stop")
    first = Job.objects.get().stop_requested_at
    assert alice.post("/spaces/alice/notes/stop").status_code == 303
    assert first is not None
    assert Job.objects.get().stop_requested_at == first


def test_start_right_after_stop_works(space: Space, alice: Client, worker: Worker) -> None:
    alice.post("/spaces/alice/notes/start")
    runs.claim(worker).to_running()
    alice.post("/spaces/alice/notes/stop")
    alice.post("/spaces/alice/notes/start")
    old, new = Job.objects.order_by("seq")
    assert (old.state, new.state, new.blocked_by) == ("stopping", "queued", old)
    assert "The run before this one is stopping" in alice.get("/spaces/alice/notes/").content.decode()


def test_restart_builds_the_newest_commit(space: Space, alice: Client, worker: Worker) -> None:
    alice.post("/spaces/alice/notes/start")
    runs.claim(worker).to_running()
    newest = commit("alice/notes", {"app.py": "print(2)\n"})
    alice.post("/spaces/alice/notes/restart", {"seen": "running"})
    assert Job.objects.order_by("seq").last().revision == newest


def test_who_wanted_to_leave_a_lost_worker_does_not_stop_an_app_that_is_back(
    space: Space, alice: Client, worker: Worker
) -> None:
    alice.post("/spaces/alice/notes/start")
    runs.claim(worker).to_running()
    answer = alice.post("/spaces/alice/notes/restart", {"seen": "unavailable"}, follow=True)
    assert "It is back" in answer.content.decode()
    assert Job.objects.get().state == "running"


def test_an_empty_repository_says_what_to_do(alice: Client) -> None:
    make_space("alice/empty", files=None)
    answer = alice.post("/spaces/alice/empty/start", follow=True)
    assert "The repository has no commit yet" in answer.content.decode()
    assert not Job.objects.exists()


@pytest.mark.parametrize("act", ["start", "stop", "restart"])
def test_a_link_cannot_act(space: Space, alice: Client, act: str) -> None:
    assert alice.get(f"/spaces/alice/notes/{act}").status_code == 405


@pytest.mark.parametrize("act", ["start", "stop", "restart"])
def test_another_site_cannot_act(space: Space, owner: User, act: str) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(owner)
    answer = client.post(f"/spaces/alice/notes/{act}")
    assert answer.status_code == 403
    assert "another site" in answer.content.decode()
    assert not Job.objects.exists()


def test_a_passer_by_is_asked_to_sign_in(space: Space, passer_by: Client) -> None:
    answer = passer_by.post("/spaces/alice/notes/start")
    assert answer.status_code == 403
    assert "Sign in to start or stop it." in answer.content.decode()
