"""In the admin a placement is chosen, shown with what it does, and set only after a second yes."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from jobs.models import AuditEvent, Job
from spaces.models import Space
from tests.factories import GpuWorkerFactory, UptimeFactory
from tests.spaces.pages import runs
from tests.spaces.repositories import make_space
from workers import standing
from workers.models import Worker

pytestmark = pytest.mark.django_db


@pytest.fixture
def root(db: None) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client


@pytest.fixture(autouse=True)
def space(db: None) -> Space:
    UptimeFactory.create()
    GpuWorkerFactory.create(name="gpu1")
    return make_space("alice/app", topics=("space", "gpu"))


@pytest.fixture
def url(space: Space) -> str:
    return reverse("admin:spaces_space_placement", args=[space.pk])


def test_the_space_s_page_leads_there_and_sets_nothing_itself(root: Client, space: Space, url: str) -> None:
    page = reverse("admin:spaces_space_change", args=[space.pk])
    assert url in root.get(page).content.decode()

    root.post(page, {"placement": "cpu", "keep_prefix": "unknown", "rewrite_host": "unknown"})

    assert Space.objects.get().placement == "automatic"


def test_workers_are_chosen_by_name_and_revoked_ones_cannot_be(root: Client, url: str) -> None:
    GpuWorkerFactory.create(name="gone")
    standing.revoke(Worker.objects.get(name="gone").pk, actor=None)

    page = root.get(url).content.decode()

    assert '<option value="gpu1">' in page
    assert "gone" not in page


def test_a_choice_is_first_shown_with_what_it_does(root: Client, space: Space, url: str) -> None:
    runs.submit(space, requirement=runs.GPU)

    page = root.post(url, {"placement": "worker", "worker": "gpu1", "reason": "its data"}).content.decode()

    assert "a whole GPU, on gpu1 only" in page
    assert "The run in line gets the new needs at once and keeps its place." in page
    assert 'name="confirmed" value="yes"' in page
    assert Space.objects.get().placement == "automatic"


def test_after_the_second_yes_it_is_set_and_recorded(root: Client, space: Space, url: str) -> None:
    runs.submit(space, requirement=runs.GPU)

    answer = root.post(
        url, {"placement": "worker", "worker": "gpu1", "reason": "its data", "confirmed": "yes"}, follow=True
    )

    assert "Placed: On gpu1 only." in answer.content.decode()
    assert str(Job.objects.get().requirement.worker) == "gpu1"
    event = AuditEvent.objects.get()
    assert (event.act, event.actor_name, event.reason) == ("space_placement", "root", "its data")
    assert event.after == {"placement": "worker", "worker": "gpu1"}


@pytest.mark.parametrize(
    "form", [{"placement": "worker", "worker": ""}, {"placement": "moon"}, {"placement": "cpu", "worker": "gpu1"}, {}]
)
def test_a_wish_that_means_nothing_is_an_error_of_the_form(root: Client, url: str, form: dict[str, str]) -> None:
    answer = root.post(url, {**form, "confirmed": "yes"})

    assert answer.status_code == 200
    assert "errorlist" in answer.content.decode()
    assert not AuditEvent.objects.exists()


def test_a_worker_that_is_revoked_while_he_reads_is_said(root: Client, url: str) -> None:
    shown = root.post(url, {"placement": "worker", "worker": "gpu1"})
    assert shown.status_code == 200
    standing.revoke(Worker.objects.get().pk, actor=None)

    answer = root.post(url, {"placement": "worker", "worker": "gpu1", "confirmed": "yes"}, follow=True)

    assert "errorlist" in answer.content.decode()
    assert Space.objects.get().placement == "automatic"


def test_it_is_for_operators(alice_client: Client, url: str) -> None:
    assert alice_client.get(url).status_code == 302
    assert alice_client.post(url, {"placement": "cpu", "confirmed": "yes"}).status_code == 302
    assert Space.objects.get().placement == "automatic"


@pytest.fixture
def alice_client(owner: User) -> Client:
    client = Client()
    client.force_login(owner)
    return client


def test_staff_without_further_rights_is_an_operator_there(operator: User, space: Space, url: str) -> None:
    client = Client()
    client.force_login(operator)
    job = runs.submit(space, requirement=runs.GPU)

    done = client.post(url, {"placement": "worker", "worker": "gpu1", "confirmed": "yes"}, follow=True)

    assert done.status_code == 200
    assert "Placed: On gpu1 only." in done.content.decode()
    for page in (
        reverse("admin:index"),
        reverse("admin:spaces_space_changelist"),
        reverse("admin:jobs_job_changelist"),
        reverse("admin:jobs_job_change", args=[job.pk]),
        reverse("admin:jobs_auditevent_changelist"),
    ):
        assert client.get(page).status_code == 200
    index = client.get(reverse("admin:index")).content.decode()
    for model in ("jobs_job", "spaces_space", "workers_worker"):
        assert reverse(f"admin:{model}_changelist") in index


def test_a_jobs_page_says_its_place_and_why_it_waits(root: Client, space: Space) -> None:
    runs.submit(make_space("alice/first"), requirement=runs.GPU)
    runs.claim(Worker.objects.get())
    job = runs.submit(space, requirement=runs.GPU)

    page = root.get(reverse("admin:jobs_job_change", args=[job.pk])).content.decode()

    assert "gpu1 / NVIDIA GeForce RTX 4090: reserved for alice/first" in page
    assert root.get(reverse("admin:jobs_job_change", args=[Job.objects.earliest("seq").pk])).status_code == 200
