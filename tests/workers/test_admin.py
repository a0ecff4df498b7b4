"""The admin: operators look, act with a confirmation that names the jobs, and never see a secret."""

from __future__ import annotations

import io
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from jobs.models import AuditEvent, Job
from tests.factories import JobFactory, SpaceFactory, UserFactory, WorkerFactory
from tests.workers.conftest import WireWorker
from workers import enrollment
from workers.models import EnrollmentToken, Worker

pytestmark = pytest.mark.django_db

Enroll = Any
LIST = "/admin/workers/worker/"


@pytest.fixture
def staff() -> Client:
    client = Client()
    client.force_login(UserFactory.create(username="olga", is_staff=True))
    return client


@pytest.fixture
def worker(enroll: Enroll) -> WireWorker:
    found: WireWorker = enroll("gpu1", local=True, gateway_url="http://127.0.0.1:18787")
    Worker.objects.update(gateway_status=Worker.Gateway.OK)
    JobFactory.create(owner="alice", repo="hello")
    found.claim()
    return found


def act(client: Client, worker: WireWorker, action: str, **more: str) -> Any:
    return client.post(LIST, {"action": action, "_selected_action": worker.id, **more}, follow=True)


@pytest.mark.parametrize("action", ["drain", "disable", "revoke"])
def test_an_act_asks_first_and_names_the_jobs(staff: Client, worker: WireWorker, action: str) -> None:
    page = act(staff, worker, action).content.decode()

    assert "alice/hello" in page and "gpu1" in page
    row = worker.row
    assert (row.scheduling, row.revoked_at) == ("open", None)


@pytest.mark.parametrize(
    ("action", "fate"), [("disable", "until it is enabled"), ("revoke", "until somebody places them elsewhere")]
)
def test_what_is_placed_on_a_worker_is_named_before_it_is_taken_away(
    staff: Client, worker: WireWorker, action: str, fate: str
) -> None:
    SpaceFactory.create(owner="alice", name="at-home", placement="worker", placement_worker=worker.row)
    SpaceFactory.create(owner="bob", name="elsewhere", placement="worker", placement_worker=WorkerFactory.create())

    page = act(staff, worker, action).content.decode()

    assert "alice/at-home" in page and fate in page
    assert "bob/elsewhere" not in page
    assert "alice/at-home" not in act(staff, worker, "drain").content.decode()


@pytest.mark.parametrize("command", ["disable", "revoke"])
def test_the_command_says_so_too(worker: WireWorker, command: str) -> None:
    SpaceFactory.create(owner="alice", name="at-home", placement="worker", placement_worker=worker.row)
    err = io.StringIO()

    call_command(command, "gpu1", stderr=err)

    assert "waiting for it now: alice/at-home" in err.getvalue()


@pytest.mark.parametrize(("action", "scheduling"), [("drain", "draining"), ("disable", "disabled")])
def test_a_confirmed_act_is_done_and_audited(staff: Client, worker: WireWorker, action: str, scheduling: str) -> None:
    act(staff, worker, action, confirmed="yes", reason="fans")

    assert worker.row.scheduling == scheduling
    event = AuditEvent.objects.exclude(actor_name="command line").get()
    assert (event.actor_name, event.reason, event.address) == ("olga", "fans", "127.0.0.1")


def test_revoking_requeues_what_had_not_started(staff: Client, worker: WireWorker) -> None:
    act(staff, worker, "revoke", confirmed="yes")

    assert worker.row.revoked_at is not None
    assert Job.objects.get().state == "queued"


def test_an_act_that_does_not_fit_is_a_sentence(staff: Client, worker: WireWorker) -> None:
    Worker.objects.update(scheduling=Worker.Scheduling.DRAINING)

    page = act(staff, worker, "enable", confirmed="yes").content.decode()

    assert "draining, not disabled" in page


def test_a_proposed_gateway_is_approved_here(staff: Client, worker: WireWorker) -> None:
    Worker.objects.update(gateway_proposed_url="http://10.0.0.5:8787")

    assert "10.0.0.5" in act(staff, worker, "approve_gateway").content.decode()
    act(staff, worker, "approve_gateway", confirmed="yes")

    assert worker.row.gateway_url == "http://10.0.0.5:8787"


@pytest.mark.parametrize("path", ["worker/", "gpu/", "enrollmenttoken/"])
def test_no_hash_is_ever_shown(staff: Client, worker: WireWorker, path: str) -> None:
    token = EnrollmentToken.objects.get()
    keys = {"worker/": worker.id, "enrollmenttoken/": token.pk}
    pages = [staff.get(f"/admin/workers/{path}")]
    if path in keys:
        pages.append(staff.get(f"/admin/workers/{path}{keys[path]}/change/"))

    for page in pages:
        assert page.status_code == 200
        for secret in (worker.row.credential_hash, token.token_hash, token.nonce_hash):
            assert secret not in page.content.decode()


@pytest.mark.parametrize("path", ["worker/add/", "gpu/add/", "enrollmenttoken/add/"])
def test_nothing_is_added_by_hand(staff: Client, path: str) -> None:
    assert staff.get(f"/admin/workers/{path}").status_code == 403


def test_nothing_is_deleted(staff: Client, worker: WireWorker) -> None:
    assert staff.post(f"{LIST}{worker.id}/delete/", {"post": "yes"}).status_code == 403
    assert act(staff, worker, "delete_selected", post="yes").status_code == 200
    assert Worker.objects.count() == 1


def test_only_the_expected_hours_can_be_typed_in(staff: Client, worker: WireWorker) -> None:
    form = {
        "expected_online": "Mon–Fri 9–18",
        "scheduling": "disabled",
        "name": "other",
        "gpus-TOTAL_FORMS": "0",
        "gpus-INITIAL_FORMS": "0",
    }

    answer = staff.post(f"{LIST}{worker.id}/change/", form)

    assert answer.status_code == 302
    row = worker.row
    assert (row.expected_online, row.scheduling, row.name) == ("Mon–Fri 9–18", "open", "gpu1")
    assert AuditEvent.objects.get(act="worker_edited").after == {"expected_online": "Mon–Fri 9–18"}


def test_tokens_are_revoked_here(staff: Client) -> None:
    issued = enrollment.issue_token("gpu9")

    staff.post("/admin/workers/enrollmenttoken/", {"action": "revoke", "_selected_action": str(issued.row.pk)})

    assert EnrollmentToken.objects.get().revoked_at is not None


def test_people_who_are_not_staff_see_nothing(worker: WireWorker) -> None:
    client = Client()
    client.force_login(UserFactory.create())

    assert client.get(LIST).status_code == 302
    assert act(client, worker, "revoke", confirmed="yes").status_code == 200
    assert worker.row.revoked_at is None


def test_the_list_costs_a_fixed_number_of_queries(staff: Client, django_assert_max_num_queries: Any) -> None:
    for _ in range(15):
        WorkerFactory.create()

    with django_assert_max_num_queries(16):
        staff.get(LIST)
