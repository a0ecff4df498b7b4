"""A revoked worker with nothing on it may be forgotten: it leaves every list, its name is free, and history stays."""

from __future__ import annotations

import io
import json
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from jobs.models import AuditEvent, Job, JobEvent, Lease
from jobs.states import JobState
from spaces.placement import PlacementRefused, nameable_workers, wish
from tests.factories import SpaceFactory, UserFactory
from tests.workers.conftest import GPU, NONCE, WireWorker
from tests.workers.taken_jobs import name_of, state_of, taken
from workers import enrollment, former, standing
from workers.errors import TokenExpired, UnknownWorker, WrongStanding
from workers.models import EnrollmentToken, Gpu, Worker
from workers.overview import fleet
from workers.reports import Enrollment

pytestmark = pytest.mark.django_db
Enroll = Any
LIST = "/admin/workers/worker/"


@pytest.fixture
def worker(enroll: Enroll) -> WireWorker:
    found: WireWorker = enroll("gpu1", gpus=[GPU], gateway_url="http://127.0.0.1:18787")
    Worker.objects.update(gateway_status=Worker.Gateway.OK)
    return found


@pytest.fixture
def operator() -> Client:
    client = Client()
    client.force_login(UserFactory.create(username="olga", is_staff=True))
    return client


def ran_here(worker: WireWorker) -> Job:
    """A job that ran on the worker to its end."""
    job, claimed = taken(worker)
    worker.events(claimed, [{"seq": 4, "kind": "exited", "code": 1, "oom_killed": False}])
    worker.heartbeat(holds=[])
    assert state_of(job) == JobState.FAILED
    return Job.objects.get(pk=job.pk)


def forgotten(worker: WireWorker, **more: Any) -> Worker:
    standing.revoke(worker.row_id, actor=None)
    return former.forget(worker.row_id, actor=None, **more)


class TestForgetting:
    def test_it_leaves_every_list(self, worker: WireWorker, operator: Client) -> None:
        forgotten(worker)

        assert fleet(with_revoked=True).lines == []
        assert nameable_workers() == []
        with pytest.raises(PlacementRefused):
            wish("worker", "gpu1")
        assert worker.id not in operator.get(LIST).content.decode()
        assert not Gpu.objects.filter(forgotten_at=None).exists()

    def test_the_history_of_its_jobs_stays(self, worker: WireWorker, operator: Client) -> None:
        job = ran_here(worker)
        before = (JobEvent.objects.count(), Lease.objects.count())

        forgotten(worker)

        assert (JobEvent.objects.count(), Lease.objects.count()) == before
        assert Job.objects.get(pk=job.pk).worker == worker.row
        assert set(JobEvent.objects.filter(job=job).exclude(worker=None).values_list("worker_name", flat=True)) == {
            "gpu1"
        }
        assert operator.get(f"/admin/jobs/job/{job.pk}/change/").status_code == 200

    def test_its_name_is_free_for_another(self, worker: WireWorker, enroll: Enroll) -> None:
        forgotten(worker)

        anew = enroll("GPU1", gpus=[GPU])

        assert anew.id != worker.id
        assert standing.worker_named("gpu1").pk == anew.row_id
        assert standing.worker_named(worker.id).pk == worker.row_id, "the former one is found by its id"

    def test_its_machine_is_still_told_that_it_was_revoked(self, worker: WireWorker) -> None:
        forgotten(worker)

        answer = worker.heartbeat()

        assert (answer.status_code, answer.json()["code"]) == (401, "credential_revoked")

    def test_a_token_that_would_bring_it_back_is_void(self, worker: WireWorker) -> None:
        standing.revoke(worker.row_id, actor=None)
        issued = enrollment.issue_token("gpu1", life=timedelta(minutes=5), replace=True)

        former.forget(worker.row_id, actor=None)

        with pytest.raises(TokenExpired):
            enrollment.enroll(Enrollment(issued.token, NONCE, "gpu1", "0.1.0", None), address="127.0.0.1")
        with pytest.raises(UnknownWorker):
            enrollment.issue_token("gpu1", life=timedelta(minutes=5), replace=True)

    def test_twice_is_once_and_audited_once(self, worker: WireWorker) -> None:
        forgotten(worker, reason="sold", address="10.0.0.7")
        former.forget(worker.row_id, actor=None)

        (event,) = AuditEvent.objects.filter(act="worker_forgotten")
        assert (event.object_name, event.object_id, event.reason) == ("gpu1", worker.id, "sold")

    def test_no_other_act_is_left(self, worker: WireWorker) -> None:
        forgotten(worker)

        with pytest.raises(WrongStanding, match="enrolls as a new worker"):
            standing.drain(worker.row_id, actor=None)
        assert standing.revoke(worker.row_id, actor=None).forgotten_at is not None


class TestWhatIsRefused:
    def test_a_worker_that_is_not_revoked(self, worker: WireWorker) -> None:
        with pytest.raises(WrongStanding, match="gpu1 is not revoked: revoke it first"):
            former.forget(worker.row_id, actor=None)

    def test_one_that_may_still_have_a_job(self, worker: WireWorker) -> None:
        job, _claimed = taken(worker)
        standing.revoke(worker.row_id, actor=None)
        token = enrollment.issue_token("gpu1", life=timedelta(minutes=5), replace=True)

        with pytest.raises(WrongStanding, match=f"may still have {name_of(job)}: stop it or start it elsewhere"):
            former.forget(worker.row_id, actor=None)
        assert EnrollmentToken.objects.get(pk=token.row.pk).revoked_at is None, "nothing is done by halves"

    def test_one_on_which_a_space_is_placed(self, worker: WireWorker) -> None:
        SpaceFactory.create(owner="alice", name="at-home", placement="worker", placement_worker=worker.row)
        standing.revoke(worker.row_id, actor=None)

        with pytest.raises(WrongStanding, match="alice/at-home is placed on gpu1: place it elsewhere first"):
            former.forget(worker.row_id, actor=None)
        assert worker.row.forgotten_at is None


class TestByEveryDoor:
    def test_the_command_takes_a_name_or_an_id(self, worker: WireWorker, enroll: Enroll) -> None:
        with pytest.raises(CommandError, match="not revoked"):
            call_command("forget_worker", "gpu1")
        other = enroll("gpu2")
        for one in (worker, other):
            standing.revoke(one.row_id, actor=None)
        out, told = io.StringIO(), io.StringIO()

        call_command("forget_worker", "GPU1", "--reason", "sold", stdout=out)
        call_command("forget_worker", other.id, "--json", stdout=told)

        assert out.getvalue() == f"gpu1 ({worker.id}) is forgotten. Its jobs' history stays; its name is free.\n"
        assert json.loads(told.getvalue())["worker_id"] == other.id
        with pytest.raises(CommandError, match="There is no worker"):
            call_command("forget_worker", str(uuid.uuid4()))

    def test_the_api_for_operators_and_nobody_else(self, worker: WireWorker, operator: Client) -> None:
        path = "/api/v1/fleet/workers/gpu1/forget"
        visitor = Client()
        visitor.force_login(UserFactory.create())
        assert visitor.post(path).status_code == 403
        refused = operator.post(path, {}, "application/json")
        assert (refused.status_code, refused.json()["code"]) == (409, "wrong_standing")
        standing.revoke(worker.row_id, actor=None)

        answer = operator.post(path, {"reason": "sold"}, "application/json")

        assert answer.status_code == 200, answer.content
        assert answer.json()["forgotten_at"] is not None
        assert operator.get("/api/v1/fleet/workers?revoked=1").json()["workers"] == []

    def test_the_admin_asks_first_and_shows_the_forgotten_to_who_asks(
        self, worker: WireWorker, operator: Client
    ) -> None:
        standing.revoke(worker.row_id, actor=None)
        form = {"action": "forget", "_selected_action": worker.id}
        asked = operator.post(LIST, form, follow=True).content.decode()
        assert "They leave every list for good" in asked
        assert worker.row.forgotten_at is None

        done = operator.post(LIST, form | {"confirmed": "yes", "reason": "sold"}, follow=True).content.decode()

        assert "Forget: 1 worker." in done
        assert worker.id not in operator.get(LIST).content.decode()
        assert worker.id in operator.get(f"{LIST}?forgotten=only").content.decode()
